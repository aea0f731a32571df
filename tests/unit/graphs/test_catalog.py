from dataclasses import FrozenInstanceError

import pytest
from catalogs import catalog, limits, no_key_ints
from hypothesis import given
from hypothesis import strategies as st

from legato.attention.graph_support import GraphSupport
from legato.graphs.key import GraphKey
from legato.graphs.ladder import context_lengths, ladder
from legato.graphs.modes import GRAPH_SAMPLERS, GraphMode, GraphPolicy, SamplerVariant
from legato.observability.reasons import Reason


def test_none_has_no_key() -> None:
    assert catalog(GraphPolicy.NONE).keys == ()


def test_decoding_has_a_key_for_each_size_and_sampler() -> None:
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, within=limits(max_num_seqs=6)).keys
    assert {(key.num_tokens, key.sampler) for key in keys} == {(n, s) for n in (1, 2, 4, 6) for s in GRAPH_SAMPLERS}
    assert all(key.mode is GraphMode.FULL and key.query_len == 1 and key.num_reqs == key.num_tokens for key in keys)


def test_a_wider_uniform_batch_has_keys_in_requests() -> None:
    within = limits(max_num_seqs=6, widths=(5,))
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, within=within, samplers=(None,)).keys
    assert [(key.num_tokens, key.num_reqs, key.query_len) for key in keys] == [
        (5, 1, 5),
        (10, 2, 5),
        (20, 4, 5),
        (30, 6, 5),
    ]


def test_piecewise_keys_see_neither_requests_nor_samplers() -> None:
    keys = catalog(GraphPolicy.PIECEWISE).keys
    assert [key.num_tokens for key in keys] == list(ladder(64))
    assert {(key.mode, key.num_reqs, key.query_len, key.sampler) for key in keys} == {
        (GraphMode.PIECEWISE, None, None, None)
    }


def test_mixed_full_keys_hold_as_many_requests_as_there_can_be() -> None:
    keys = catalog(GraphPolicy.FULL, samplers=(None,), within=limits(max_num_seqs=8, max_num_batched_tokens=32)).keys
    mixed = {key.num_tokens: key.num_reqs for key in keys if key.query_len is None}
    assert mixed == {size: min(size, 8) for size in ladder(32)}


def test_a_lowered_full_policy_gets_piecewise_keys() -> None:
    modes = {(key.mode, key.query_len) for key in catalog(GraphPolicy.FULL, GraphSupport.UNIFORM).keys}
    assert modes == {(GraphMode.FULL, 1), (GraphMode.PIECEWISE, None)}


def test_the_users_sizes_are_tokens() -> None:
    keys = catalog(
        GraphPolicy.FULL_AND_PIECEWISE,
        within=limits(max_num_seqs=8, widths=(4,), max_num_batched_tokens=64),
        sizes=(4, 6, 16, 64, 128),
        samplers=(None,),
    ).keys
    full = [(key.num_tokens, key.num_reqs) for key in keys if key.mode is GraphMode.FULL]
    assert full == [(4, 1), (16, 4)], "multiples of the width, up to max_num_seqs requests"
    assert [key.num_tokens for key in keys if key.mode is GraphMode.PIECEWISE] == [4, 6, 16, 64]


def test_every_host_integer_that_the_backend_can_ask_for_has_a_key() -> None:
    def key_ints(num_reqs: int, query_len: int | None, max_seq_len: int) -> tuple[tuple[str, int], ...]:
        return (("num_splits", 1 if max_seq_len < 100 else 4), ("wide", int(num_reqs > 2)))

    within = limits(max_num_seqs=4, max_model_len=300)
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, within=within, samplers=(None,), key_ints=key_ints).keys
    assert {(key.num_reqs, dict(key.key_ints)["num_splits"], dict(key.key_ints)["wide"]) for key in keys} == {
        (size, splits, int(size > 2)) for size in (1, 2, 4) for splits in (1, 4)
    }
    asked = {dict(key_ints(4, 1, length))["num_splits"] for length in context_lengths(300)}
    assert asked == {1, 4}


def test_piecewise_keys_carry_no_host_integer() -> None:
    keys = catalog(GraphPolicy.PIECEWISE, key_ints=lambda *_: (("splits", 3),)).keys
    assert all(key.key_ints == () for key in keys)


@given(
    st.sampled_from(GraphPolicy),
    st.sampled_from(GraphSupport),
    st.integers(1, 40),
    st.integers(1, 16),
    st.none() | st.sets(st.integers(1, 200), min_size=1, max_size=6),
)
def test_keys_are_distinct_and_stand_in_the_order_of_dispatch(
    policy: GraphPolicy, level: GraphSupport, max_num_seqs: int, width: int, sizes: set[int] | None
) -> None:
    within = limits(max_num_seqs=max_num_seqs, max_num_batched_tokens=640, widths=(1, width) if width > 1 else (1,))
    keys = catalog(policy, level, within, sizes=tuple(sizes) if sizes else None).keys
    assert len(set(keys)) == len(keys)
    order = [(-key.mode, key.num_tokens) for key in keys]
    assert order == sorted(order)
    assert all(key.num_tokens <= 640 and (key.num_reqs or 0) <= max_num_seqs for key in keys)


def test_dropping_a_key_makes_a_new_catalog_that_remembers_why() -> None:
    before = catalog()
    key = before.keys[0]
    after = before.without(key, Reason.CANARY_FAILED)
    assert key in before.keys
    assert key not in after.keys
    assert after.dropped == {key: Reason.CANARY_FAILED}
    assert before.dropped == {}


def test_a_key_is_a_frozen_hashable_value_that_says_what_it_is() -> None:
    key = GraphKey(
        mode=GraphMode.FULL,
        num_tokens=8,
        num_reqs=4,
        query_len=2,
        sampler=SamplerVariant.FILTERED,
        key_ints=(("splits", 3),),
    )
    assert str(key) == "target/full tokens=8 reqs=4 query_len=2 filtered splits=3"
    assert {key: 1}[key] == 1
    with pytest.raises(FrozenInstanceError):
        key.num_tokens = 9


def test_no_key_ints_is_what_a_backend_without_any_returns() -> None:
    assert no_key_ints(1, 1, 1) == ()
