"""Every batch that the scheduler can make gets the mode that the policy promises, on the smallest key that serves."""

from dataclasses import replace

import pytest
from catalogs import MAX_NUM_SEQS, WIDTHS, best_key, catalog, ladder_catalog, ladder_limits, limits, resolved, shape
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.attention.graph_support import GraphSupport
from legato.graphs.dispatch import dispatch
from legato.graphs.key import BatchShape
from legato.graphs.modes import GraphMode, GraphPolicy, SamplerVariant
from legato.observability.reasons import Reason


@st.composite
def scheduled(draw: st.DrawFn, max_num_seqs: int, width: int) -> BatchShape:
    """A batch that the scheduler can make within ``ladder_limits``."""
    within = ladder_limits(max_num_seqs, width)
    num_reqs = draw(st.integers(1, max_num_seqs))
    sampler = draw(st.sampled_from(SamplerVariant))
    hidden = draw(st.booleans())
    query_len = draw(st.sampled_from([None, *within.widths]))
    if query_len is not None:
        return shape(num_reqs * query_len, num_reqs, query_len, sampler=sampler)
    num_tokens = draw(st.integers(num_reqs, within.max_num_batched_tokens))
    return shape(num_tokens, num_reqs, None, sampler=sampler, needs_hidden_states=hidden)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(GraphPolicy),
    st.sampled_from(GraphSupport),
    st.sampled_from(MAX_NUM_SEQS),
    st.sampled_from(WIDTHS),
    st.data(),
)
def test_a_batch_gets_the_promised_mode_on_the_smallest_serving_key(
    policy: GraphPolicy, level: GraphSupport, max_num_seqs: int, width: int, data: st.DataObject
) -> None:
    keys = ladder_catalog(policy, level, max_num_seqs, width)
    batch = data.draw(scheduled(max_num_seqs, width))
    given_mode = keys.policy.given_mode(batch.query_len)
    got = dispatch(keys, batch)
    assert got.key == best_key(keys, given_mode, batch)
    assert got.requested is keys.policy.requested_mode(batch.query_len)
    if not (given_mode is GraphMode.FULL and batch.needs_hidden_states):
        assert got.mode is given_mode, "nothing falls off the end"
    assert (got.reason is None) == (got.mode is GraphMode.FULL)
    assert (got.key is None) == (got.mode is GraphMode.EAGER)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MAX_NUM_SEQS), st.sampled_from(WIDTHS), st.data())
def test_padding_above_16_is_at_most_an_eighth_of_the_batch(max_num_seqs: int, width: int, data: st.DataObject) -> None:
    keys = ladder_catalog(GraphPolicy.FULL_AND_PIECEWISE, GraphSupport.UNIFORM, max_num_seqs, width)
    batch = data.draw(scheduled(max_num_seqs, width))
    key = dispatch(keys, batch).key
    assert key is not None
    if batch.query_len is None and batch.num_tokens > 16:
        assert key.num_tokens <= 1.125 * batch.num_tokens
    if batch.query_len is not None and batch.num_reqs > 16:
        assert key.num_tokens <= 1.125 * batch.num_tokens
        assert key.num_reqs is not None
        assert key.num_reqs <= 1.125 * batch.num_reqs


@pytest.mark.parametrize("max_num_seqs", MAX_NUM_SEQS)
@pytest.mark.parametrize("width", [1, 3, 16])
def test_every_uniform_batch_of_a_uniform_backend_is_full(max_num_seqs: int, width: int) -> None:
    keys = ladder_catalog(GraphPolicy.FULL_DECODE_ONLY, GraphSupport.UNIFORM, max_num_seqs, width)
    for num_reqs in range(1, max_num_seqs + 1):
        for query_len in {1, width}:
            assert dispatch(keys, shape(num_reqs * query_len, num_reqs, query_len)).mode is GraphMode.FULL


def test_a_mixed_batch_never_gets_a_uniform_key() -> None:
    keys = catalog(GraphPolicy.FULL_AND_PIECEWISE)
    got = dispatch(keys, shape(4, 4, None))
    assert got.mode is GraphMode.PIECEWISE
    assert got.key is not None
    assert got.key.query_len is None


def test_a_uniform_batch_takes_a_mixed_full_key_where_its_own_are_gone() -> None:
    keys = catalog(GraphPolicy.FULL)
    for key in [key for key in keys.keys if key.query_len == 1]:
        keys = keys.without(key, Reason.CAPTURE_FAILED)
    got = dispatch(keys, shape(3, 3, 1))
    assert got.key is not None
    assert (got.mode, got.key.query_len, got.key.num_tokens) == (GraphMode.FULL, None, 4)


def test_the_cheapest_sampler_that_serves_is_taken() -> None:
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY)
    for wanted in SamplerVariant:
        got = dispatch(keys, shape(3, 3, 1, sampler=wanted))
        assert got.key is not None
        assert got.key.sampler is (None if wanted is SamplerVariant.GENERAL else wanted)


def test_a_dropped_key_is_passed_over_for_a_larger_one() -> None:
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, samplers=(None,))
    keys = keys.without(keys.keys[1], Reason.CANARY_FAILED)
    got = dispatch(keys, shape(2, 2, 1))
    assert got.key is not None
    assert (got.mode, got.key.num_tokens, got.reason) == (GraphMode.FULL, 4, None)


@pytest.mark.parametrize("reason", [Reason.CAPTURE_FAILED, Reason.CANARY_FAILED, Reason.STALE_EPOCH])
@pytest.mark.parametrize(
    ("policy", "served"),
    [(GraphPolicy.FULL_AND_PIECEWISE, GraphMode.PIECEWISE), (GraphPolicy.FULL_DECODE_ONLY, GraphMode.EAGER)],
)
def test_where_all_keys_are_dropped_the_next_mode_serves_with_their_reason(
    reason: Reason, policy: GraphPolicy, served: GraphMode
) -> None:
    keys = catalog(policy)
    for key in [key for key in keys.keys if key.mode is GraphMode.FULL]:
        keys = keys.without(key, reason)
    got = dispatch(keys, shape(2, 2, 1))
    assert (got.requested, got.mode, got.reason) == (GraphMode.FULL, served, reason)


def test_a_batch_beyond_the_users_sizes_is_too_large() -> None:
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, sizes=(1, 2))
    got = dispatch(keys, shape(3, 3, 1))
    assert (got.mode, got.reason) == (GraphMode.EAGER, Reason.BATCH_TOO_LARGE)
    keys = catalog(GraphPolicy.PIECEWISE, sizes=(8,))
    got = dispatch(keys, shape(9, 1, None))
    assert (got.mode, got.reason) == (GraphMode.EAGER, Reason.BATCH_TOO_LARGE)


def test_a_batch_beyond_the_full_sizes_is_piecewise_and_says_so() -> None:
    keys = catalog(GraphPolicy.FULL_AND_PIECEWISE, sizes=(2, 64), within=limits(max_num_seqs=8))
    got = dispatch(keys, shape(5, 5, 1))
    assert (got.mode, got.reason) == (GraphMode.PIECEWISE, Reason.BATCH_TOO_LARGE)


def test_a_host_integer_without_a_key_is_declined() -> None:
    keys = catalog(GraphPolicy.FULL_DECODE_ONLY, key_ints=lambda *_: (("splits", 2),))
    assert dispatch(keys, shape(3, 3, 1, key_ints=(("splits", 2),))).mode is GraphMode.FULL
    got = dispatch(keys, shape(3, 3, 1, key_ints=(("splits", 7),)))
    assert (got.mode, got.reason) == (GraphMode.EAGER, Reason.BACKEND_DECLINED)


def test_what_the_user_switched_off_is_disabled() -> None:
    assert dispatch(catalog(GraphPolicy.NONE), shape(1, 1, 1)).reason is Reason.DISABLED_BY_USER
    assert dispatch(catalog(GraphPolicy.PIECEWISE), shape(1, 1, 1)).reason is Reason.DISABLED_BY_USER
    assert dispatch(catalog(GraphPolicy.FULL_DECODE_ONLY), shape(9, 2, None)).reason is Reason.DISABLED_BY_USER
    assert dispatch(catalog(GraphPolicy.FULL_AND_PIECEWISE), shape(9, 2, None)).reason is Reason.DISABLED_BY_USER


def test_what_the_backend_cannot_do_is_its_level() -> None:
    got = dispatch(catalog(GraphPolicy.FULL, GraphSupport.UNIFORM), shape(9, 2, None))
    assert (got.requested, got.mode, got.reason) == (GraphMode.FULL, GraphMode.PIECEWISE, Reason.BACKEND_LEVEL)
    got = dispatch(catalog(GraphPolicy.FULL_DECODE_ONLY, GraphSupport.NEVER), shape(2, 2, 1))
    assert (got.requested, got.mode, got.reason) == (GraphMode.FULL, GraphMode.PIECEWISE, Reason.BACKEND_LEVEL)


def test_a_width_for_which_nothing_was_captured_is_a_mismatch() -> None:
    got = dispatch(catalog(GraphPolicy.FULL_DECODE_ONLY), shape(6, 2, 3))
    assert (got.mode, got.reason) == (GraphMode.EAGER, Reason.WIDTH_MISMATCH)


def test_hidden_states_are_incompatible_with_a_full_graph() -> None:
    got = dispatch(catalog(GraphPolicy.FULL), shape(9, 2, None, needs_hidden_states=True))
    assert (got.mode, got.reason) == (GraphMode.EAGER, Reason.FEATURE_INCOMPATIBLE)
    got = dispatch(catalog(GraphPolicy.FULL_AND_PIECEWISE), shape(9, 2, None, needs_hidden_states=True))
    assert got.mode is GraphMode.PIECEWISE


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MAX_NUM_SEQS), st.sampled_from(WIDTHS), st.data())
def test_a_step_that_is_not_full_always_has_a_reason_whatever_was_dropped(
    max_num_seqs: int, width: int, data: st.DataObject
) -> None:
    policy = data.draw(st.sampled_from(GraphPolicy))
    keys = ladder_catalog(policy, data.draw(st.sampled_from(GraphSupport)), max_num_seqs, width)
    for key in data.draw(st.lists(st.sampled_from(keys.keys), max_size=20, unique=True)) if keys.keys else ():
        keys = keys.without(key, data.draw(st.sampled_from([Reason.CAPTURE_FAILED, Reason.CANARY_FAILED])))
    batch = data.draw(scheduled(max_num_seqs, width))
    got = dispatch(keys, batch)
    assert got.key == best_key(keys, keys.policy.given_mode(batch.query_len), batch)
    assert (got.reason is None) == (got.mode is GraphMode.FULL)


def test_dispatch_depends_on_the_shape_alone() -> None:
    keys, batch = catalog(), shape(3, 3, 1)
    assert dispatch(keys, batch) == dispatch(replace(keys), replace(batch))
    assert hash(dispatch(keys, batch)) == hash(dispatch(keys, batch))


def test_the_policy_of_an_unknown_width_is_that_of_mixed_batches() -> None:
    policy = resolved(GraphPolicy.FULL_AND_PIECEWISE, GraphSupport.ALWAYS, (1,))
    assert policy.given_mode(7) is GraphMode.PIECEWISE


def test_a_batch_is_dispatched_anew_once_its_graph_is_dropped() -> None:
    keys, batch = catalog(GraphPolicy.FULL, GraphSupport.ALWAYS), shape(4, 4, 1)
    first = dispatch(keys, batch)
    assert dispatch(keys, batch) == first
    assert first.key is not None
    without = keys.without(first.key, Reason.STALE_EPOCH)
    assert dispatch(without, batch).key not in (None, first.key)
    assert dispatch(keys, batch) == first
