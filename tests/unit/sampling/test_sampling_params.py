"""Parameters outside their range are refused when they are made, by name."""

from typing import Any

import pytest

from legato.errors import RequestError
from legato.flow.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("max_tokens", 0),
        ("max_tokens", "16"),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("min_tokens", 2.5),
        ("n", None),
        ("temperature", None),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_k", 2.0),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", 2**63),
        ("seed", 0.5),
        ("logprobs", -1),
        ("prompt_logprobs", 1.0),
        ("stop", "END"),
        ("stop", ("",)),
        ("stop", ("a",) * 17),
        ("stop_token_ids", (1,) * 65),
        ("allowed_token_ids", ()),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(RequestError) as error:
        SamplingParams(**{param: value})
    assert error.value.param == param
    assert param in str(error.value)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 128),
        ("max_tokens", None),
        ("min_tokens", 16),
        ("temperature", 0),
        ("temperature", 100.0),
        ("top_p", 1),
        ("seed", -(2**63)),
        ("stop", ("a",) * 16),
        ("stop", ["a"]),
    ],
)
def test_a_value_at_the_end_of_its_range_is_taken(param: str, value: Any) -> None:
    assert getattr(SamplingParams(**{param: value}), param) == value
