"""The search finds a batch for every graph that dispatch can select, and none for one that it cannot."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.attention.graph_support import GraphSupport, Support
from legato.graphs.catalog import Catalog, GraphLimits, build_catalog
from legato.graphs.key import KeyInts
from legato.graphs.modes import GraphPolicy
from legato.graphs.policy import resolve_policy
from legato.plan.planner import Planner
from legato.verify.reachability import batch_that_selects


def splits(num_reqs: int, query_len: int | None, max_seq_len: int) -> KeyInts:
    """Integers that depend on the length, as a backend with split keys declares them."""
    return (("num_splits", max(1, max_seq_len // 64)),)


def catalog_and_planner(
    policy: GraphPolicy, level: GraphSupport, max_num_seqs: int, max_num_batched_tokens: int
) -> tuple[Catalog, Planner]:
    limits = GraphLimits(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, max_model_len=256)
    support = Support(level=level, reason="test")
    resolved = resolve_policy(policy, support, backend="test", widths=(1,), strict=False)
    catalog = build_catalog(resolved, limits, sizes=None, key_ints=splits)
    return catalog, Planner(limits=limits, key_ints=splits)


@settings(deadline=None, max_examples=20)
@given(
    policy=st.sampled_from(GraphPolicy),
    level=st.sampled_from([GraphSupport.UNIFORM_SINGLE_TOKEN, GraphSupport.UNIFORM, GraphSupport.ALWAYS]),
    max_num_seqs=st.integers(1, 24),
    extra_tokens=st.integers(0, 60),
)
def test_every_key_of_a_ladder_is_selected_by_the_batch_that_is_found(
    policy: GraphPolicy, level: GraphSupport, max_num_seqs: int, extra_tokens: int
) -> None:
    catalog, planner = catalog_and_planner(policy, level, max_num_seqs, max_num_seqs + extra_tokens)
    for key in catalog.keys:
        batch = batch_that_selects(key, planner, catalog)
        assert batch is not None, f"{key} is not reachable"
        assert planner.plan(batch, catalog).target.key == key
        assert len(batch.requests) <= max_num_seqs


def test_a_graph_behind_one_that_serves_the_same_batches_is_not_reachable() -> None:
    catalog, planner = catalog_and_planner(GraphPolicy.PIECEWISE, GraphSupport.ALWAYS, 4, 8)
    first, *others = catalog.keys
    hidden = replace(first, num_reqs=4)
    catalog = replace(catalog, keys=(first, hidden, *others))
    assert batch_that_selects(hidden, planner, catalog) is None
    assert batch_that_selects(first, planner, catalog) is not None


@pytest.mark.parametrize("num_splits", [3, 100])
def test_a_graph_for_integers_that_no_length_gives_is_not_reachable(num_splits: int) -> None:
    catalog, planner = catalog_and_planner(GraphPolicy.FULL, GraphSupport.ALWAYS, 4, 8)
    odd = replace(catalog.keys[0], key_ints=(("num_splits", num_splits),))
    assert batch_that_selects(odd, planner, replace(catalog, keys=(odd, *catalog.keys))) is None
