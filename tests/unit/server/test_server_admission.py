import pytest

from legato.errors import QueueFullError, RequestError
from legato.server.admission import Admission


def test_slots_are_free_again_when_their_request_ends_even_by_an_error():
    admission = Admission(2)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), admission.slots(2):
            raise ZeroDivisionError
    with admission.slots(1), admission.slots(1):
        pass


def test_a_request_too_many_is_refused_and_takes_nothing():
    admission = Admission(3)
    with admission.slots(2):
        with pytest.raises(QueueFullError) as caught, admission.slots(2):
            pass
        assert caught.value.details["found"] == "2 running or waiting"
        with admission.slots(1):
            pass


def test_a_request_that_can_never_fit_is_not_told_to_try_again():
    with pytest.raises(RequestError) as caught, Admission(3).slots(4):
        pass
    assert not isinstance(caught.value, QueueFullError)
