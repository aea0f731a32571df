from dataclasses import replace

import pytest
from catalogs import fits, shape
from hypothesis import given
from hypothesis import strategies as st

from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant

KEY = GraphKey(
    mode=GraphMode.FULL,
    num_tokens=8,
    num_reqs=4,
    query_len=2,
    sampler=SamplerVariant.TEMPERATURE,
    key_ints=(("splits", 3),),
)
SHAPE = shape(6, 3, 2, sampler=SamplerVariant.TEMPERATURE, key_ints=(("splits", 3),))


def test_a_key_serves_any_batch_that_fits_in_it() -> None:
    assert KEY.serves(SHAPE)
    assert KEY.serves(replace(SHAPE, num_tokens=8, num_reqs=4))
    assert KEY.serves(replace(SHAPE, num_tokens=2, num_reqs=1, sampler=SamplerVariant.GREEDY))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_tokens": 9},
        {"num_reqs": 5},
        {"query_len": 1},
        {"query_len": None},
        {"sampler": SamplerVariant.FILTERED},
        {"key_ints": (("splits", 4),)},
        {"key_ints": ()},
        {"needs_hidden_states": True},
    ],
    ids=str,
)
def test_a_key_does_not_serve_what_exceeds_it_in_one_point(changes: dict[str, object]) -> None:
    assert not KEY.serves(replace(SHAPE, **changes))


def test_a_piecewise_key_sees_the_number_of_tokens_alone() -> None:
    key = GraphKey(mode=GraphMode.PIECEWISE, num_tokens=8)
    assert key.serves(replace(SHAPE, needs_hidden_states=True, sampler=SamplerVariant.GENERAL))
    assert not key.serves(replace(SHAPE, num_tokens=9))


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, *SamplerVariant]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(SamplerVariant),
    st.booleans(),
)
def test_serving_is_what_the_design_says(
    num_tokens, num_reqs, query_len, sampler, batch_tokens, batch_reqs, batch_query_len, batch_sampler, hidden
) -> None:
    key = GraphKey(mode=GraphMode.FULL, num_tokens=num_tokens, num_reqs=num_reqs, query_len=query_len, sampler=sampler)
    batch = shape(batch_tokens, batch_reqs, batch_query_len, sampler=batch_sampler, needs_hidden_states=hidden)
    assert key.serves(batch) == fits(key, batch)
