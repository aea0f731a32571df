"""Which sampler a request needs."""

from typing import Any

import pytest

from legato.flow.sampler_variant import variant_of
from legato.flow.sampling_params import SamplingParams
from legato.graphs.modes import SamplerVariant


@pytest.mark.parametrize(
    ("params", "variant"),
    [
        ({"temperature": 0.0}, SamplerVariant.GREEDY),
        ({"temperature": 0.0, "top_k": 5, "top_p": 0.5}, SamplerVariant.GREEDY),
        ({}, SamplerVariant.TEMPERATURE),
        ({"top_k": 5}, SamplerVariant.FILTERED),
        ({"top_p": 0.9}, SamplerVariant.FILTERED),
        ({"min_p": 0.1}, SamplerVariant.FILTERED),
        ({"temperature": 0.0, "repetition_penalty": 1.1}, SamplerVariant.GENERAL),
        ({"presence_penalty": 0.1}, SamplerVariant.GENERAL),
        ({"frequency_penalty": -0.1}, SamplerVariant.GENERAL),
        ({"logit_bias": ((3, 1.0),)}, SamplerVariant.GENERAL),
        ({"allowed_token_ids": (3,)}, SamplerVariant.GENERAL),
        ({"bad_words_token_ids": ((3, 4),)}, SamplerVariant.GENERAL),
    ],
)
def test_the_smallest_variant_that_serves_the_parameters_is_named(
    params: dict[str, Any], variant: SamplerVariant
) -> None:
    assert variant_of(SamplingParams(**params), 0) is variant


def test_min_tokens_needs_the_general_variant_only_until_it_is_reached() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=3)
    assert [variant_of(params, count) for count in range(5)] == [SamplerVariant.GENERAL] * 3 + [
        SamplerVariant.GREEDY
    ] * 2


def test_min_tokens_needs_nothing_where_no_token_ends_the_output() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=3, ignore_eos=True)
    assert variant_of(params, 0) is SamplerVariant.GREEDY
    stoppable = SamplingParams(temperature=0.0, min_tokens=3, ignore_eos=True, stop_token_ids=(5,))
    assert variant_of(stoppable, 0) is SamplerVariant.GENERAL
