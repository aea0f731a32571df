import pytest
from catalogs import resolved
from hypothesis import given
from hypothesis import strategies as st

from legato.attention.graph_support import GraphSupport
from legato.errors import GraphPolicyError
from legato.graphs.modes import GraphMode, GraphPolicy

EAGER, PIECEWISE, FULL = GraphMode.EAGER, GraphMode.PIECEWISE, GraphMode.FULL
NEVER, SINGLE, UNIFORM, ALWAYS = GraphSupport
TABLE = {
    GraphPolicy.NONE: (EAGER, EAGER),
    GraphPolicy.PIECEWISE: (PIECEWISE, PIECEWISE),
    GraphPolicy.FULL: (FULL, FULL),
    GraphPolicy.FULL_DECODE_ONLY: (EAGER, FULL),
    GraphPolicy.FULL_AND_PIECEWISE: (PIECEWISE, FULL),
}
"""policy -> what a mixed and what a uniform batch are asked to be."""


@pytest.mark.parametrize("policy", GraphPolicy)
@pytest.mark.parametrize("level", GraphSupport)
@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_each_class_of_batch_gets_the_best_mode_that_the_level_allows(
    policy: GraphPolicy, level: GraphSupport, width: int
) -> None:
    mixed, uniform = TABLE[policy]
    got = resolved(policy, level, (width,))
    allowed_uniform = level >= (SINGLE if width == 1 else UNIFORM)
    assert got.requested_mode(None) is mixed
    assert got.requested_mode(width) is uniform
    assert got.given_mode(None) is (PIECEWISE if mixed is FULL and level < ALWAYS else mixed)
    assert got.given_mode(width) is (PIECEWISE if uniform is FULL and not allowed_uniform else uniform)


@given(st.sampled_from(GraphPolicy), st.sampled_from(GraphSupport), st.sets(st.integers(1, 16), min_size=1))
def test_every_lowering_is_a_decision_with_a_reason_and_there_is_no_other(
    policy: GraphPolicy, level: GraphSupport, widths: set[int]
) -> None:
    got = resolved(policy, level, tuple(sorted(widths)))
    classes = [None, *sorted(widths)]
    lowered = [width for width in classes if got.given_mode(width) is not got.requested_mode(width)]
    assert len(got.decisions) == len(lowered)
    for decision in got.decisions:
        assert (decision.requested, decision.given) == ("full", "piecewise")
        assert "testing" in decision.reason
        assert level.name in decision.reason
        assert "because" in decision.reason


@given(st.sampled_from(GraphPolicy), st.sampled_from(GraphSupport), st.sets(st.integers(1, 16), min_size=1))
def test_strict_raises_exactly_where_something_is_lowered(
    policy: GraphPolicy, level: GraphSupport, widths: set[int]
) -> None:
    decisions = resolved(policy, level, tuple(widths)).decisions
    if not decisions:
        assert resolved(policy, level, tuple(widths), strict=True).decisions == ()
        return
    with pytest.raises(GraphPolicyError) as caught:
        resolved(policy, level, tuple(widths), strict=True)
    assert all(decision.subject in str(caught.value) for decision in decisions)


@pytest.mark.parametrize("policy", GraphPolicy)
@pytest.mark.parametrize("level", GraphSupport)
@pytest.mark.parametrize("widths", [(1,), (1, 4)])
def test_the_policy_that_a_strict_error_offers_is_granted(
    policy: GraphPolicy, level: GraphSupport, widths: tuple[int, ...]
) -> None:
    try:
        resolved(policy, level, widths, strict=True)
    except GraphPolicyError as error:
        options = str(error.details["options"])
        offered = GraphPolicy(options.removeprefix("--graph-policy ").split(" ")[0])
        assert offered is not policy
        assert resolved(offered, level, widths, strict=True).decisions == ()
        assert f"--graph-policy {policy} --graph-strict" in str(error)


def test_levels_are_ordered() -> None:
    assert NEVER < SINGLE < UNIFORM < ALWAYS
    assert EAGER < PIECEWISE < FULL
