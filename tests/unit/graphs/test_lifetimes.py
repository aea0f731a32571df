"""Memory that no segment's code holds any more is another's: an eager call that relies on it is caught."""

from collections.abc import Callable, Iterator

import pytest
import torch

from legato.device.recording import RecordingDevice
from legato.graphs.segments import EagerCall, SegmentedCapture

SMALL, LARGE = 4, 1 << 15
"""Numbers that the recording device keeps in a place of their own, and that it makes anew at each replay."""


@pytest.fixture(autouse=True)
def memory_is_written_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(RecordingDevice, "writes_over_released", True)
    with torch.inference_mode():
        yield


def segmented(work: Callable[[SegmentedCapture], None]) -> Callable[[], None]:
    """Capture ``work`` in segments and return its replay."""
    segments = SegmentedCapture(RecordingDevice())
    parts = segments.capture(lambda: work(segments), whole=False)

    def replay() -> None:
        for part in parts:
            part.replay()

    return replay


def layer(segments: SegmentedCapture, hidden: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """What a layer does: a product, an eager call on borrowed tensors, and a sum with what it wrote."""
    query = hidden * 2
    out = torch.empty_like(query)
    lent = segments.borrow(query), segments.borrow(out)
    segments.run_eagerly(lambda: lent[1].copy_(lent[0] + offset))
    return out.view(-1) + hidden


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_borrowed_tensors_of_many_layers_hold_at_every_replay(size: int) -> None:
    given, result = torch.ones(size), torch.zeros(size)

    def work(segments: SegmentedCapture) -> None:
        offset = given * 100  # as metadata: made in the first segment, read by every eager call
        hidden = given + 0
        lent = segments.borrow(offset)
        for _ in range(3):
            hidden = layer(segments, hidden, lent)
        result.copy_(hidden + offset)

    replay = segmented(work)
    for value in (1.0, 5.0):
        given.fill_(value)
        replay()
        expected = value
        for _ in range(3):
            expected = expected * 3 + 100 * value
        assert result[0].item() == result[-1].item() == expected + 100 * value


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_an_eager_call_borrows_from_nobody_is_written_over(size: int) -> None:
    given, result = torch.ones(size), torch.zeros(size)

    def work(segments: SegmentedCapture) -> None:
        lent = segments.borrow(given * 100)  # the owner is gone with this line
        hidden = given + 0
        for _ in range(3):
            hidden = layer(segments, hidden, lent)
        result.copy_(hidden)

    replay = segmented(work)
    given.fill_(2.0)
    replay()
    assert result[0].item() != ((2 * 3 + 200) * 3 + 200) * 3 + 200


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_an_owner_that_goes_too_soon_is_caught_at_the_first_replay(size: int) -> None:
    given, result = torch.ones(size), torch.zeros(size)

    def work(segments: SegmentedCapture) -> None:
        offset = given * 100
        lent = segments.borrow(offset)
        hidden = layer(segments, given + 0, lent)
        del offset
        hidden = layer(segments, hidden, lent)  # the segment that ends here may use the memory
        result.copy_(layer(segments, hidden, lent))

    segmented(work)()
    assert torch.isnan(result).all()


def test_a_view_holds_what_it_is_a_view_of() -> None:
    given, result = torch.ones(SMALL), torch.zeros(SMALL)

    def work(segments: SegmentedCapture) -> None:
        made = given * 3
        segments.run_eagerly(lambda: None)
        view = made.view(2, -1)
        del made
        for _ in range(2):
            segments.run_eagerly(lambda: None)
        result.copy_(view.view(-1))

    segmented(work)()
    assert result.tolist() == [3.0] * SMALL


def test_a_later_key_may_use_the_memory_of_an_earlier_one_without_harm() -> None:
    given, first, second = torch.ones(SMALL), torch.zeros(SMALL), torch.zeros(SMALL)
    device = RecordingDevice()

    def captured(result: torch.Tensor) -> tuple[object, ...]:
        segments = SegmentedCapture(device)
        return segments.capture(lambda: result.copy_(layer(segments, given * 2, given)), whole=False)

    keys = [captured(first), captured(second)]
    given.fill_(3.0)
    for parts in (*keys, keys[0]):
        for part in parts:
            part.replay()
    assert first.tolist() == second.tolist() == [2 * 6 + 3.0 + 6] * SMALL
    assert [type(part) is EagerCall for part in keys[0]] == [False, True, False]
