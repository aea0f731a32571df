from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest
from batches import GREEDY, Load, batch, decode, prefill
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.attention.graph_support import GraphSupport, Support
from legato.flow.execution_plan import ExecutionPlan
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import ScheduledBatch
from legato.graphs.catalog import Catalog, GraphLimits, build_catalog
from legato.graphs.modes import GraphMode, GraphPolicy, SamplerVariant, Stage
from legato.graphs.policy import resolve_policy
from legato.observability.reasons import Reason
from legato.plan.planner import Planner, uniform_width


def no_key_ints(num_reqs: int, query_len: int | None, max_seq_len: int) -> tuple[tuple[str, int], ...]:
    return ()


def engine_of(
    policy: GraphPolicy = GraphPolicy.FULL_AND_PIECEWISE,
    *,
    widths: tuple[int, ...] = (1,),
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 128,
    level: GraphSupport = GraphSupport.ALWAYS,
    draft_stages: tuple[Stage, ...] = (),
) -> tuple[Planner, Catalog]:
    limits = GraphLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=64,
        widths=widths,
    )
    support = Support(level=level, reason="testing")
    drafts_attend = Stage.EXTEND in draft_stages if draft_stages else None
    resolved = resolve_policy(
        policy, support, backend="testing", widths=widths, strict=False, drafts_attend=drafts_attend
    )
    catalog = build_catalog(resolved, limits, sizes=None, key_ints=no_key_ints, draft_stages=draft_stages)
    return Planner(limits=limits, key_ints=no_key_ints, draft_stages=draft_stages), catalog


def plan(scheduled: ScheduledBatch, policy: GraphPolicy = GraphPolicy.FULL_AND_PIECEWISE) -> ExecutionPlan:
    planner, catalog = engine_of(policy)
    return planner.plan(scheduled, catalog)


def test_decoding_requests_are_a_uniform_batch_on_a_full_graph() -> None:
    got = plan(batch(decode(3), decode(0), decode(5)))
    target = got.target
    assert (target.shape.query_len, target.mode, target.reason) == (1, GraphMode.FULL, None)
    assert (target.num_reqs_padded, target.num_tokens_padded) == (4, 4)
    assert got.rows == (3, 0, 5)
    assert got.query_start_loc == (0, 1, 2, 3)
    assert got.sample_in_graph


@pytest.mark.parametrize("width", range(1, 17))
def test_a_prompt_of_exactly_the_width_is_mixed(width: int) -> None:
    assert uniform_width((prefill(0, width),), (1, width)) is None
    planner, catalog = engine_of(widths=(width,))
    got = planner.plan(batch(prefill(0, width), prefill(1, width)), catalog)
    target = got.target
    assert (target.shape.query_len, target.mode) == (None, GraphMode.PIECEWISE)


@pytest.mark.parametrize("width", range(1, 17))
def test_a_last_chunk_of_exactly_the_width_is_mixed(width: int) -> None:
    got = uniform_width((decode(0, width=width), prefill(1, width, computed=32)), (width,))
    assert got is None


@pytest.mark.parametrize("width", range(1, 17))
def test_decodes_of_one_width_are_uniform_where_it_is_known(width: int) -> None:
    requests = (decode(0, width=width), decode(1, width=width))
    assert uniform_width(requests, (width,)) == width
    assert uniform_width(requests, (17,)) is None


def test_decodes_of_two_widths_are_mixed() -> None:
    assert uniform_width((decode(0, width=2), decode(1, width=3)), (2, 3)) is None


def test_a_decode_beside_a_prompt_is_mixed() -> None:
    got = plan(batch(decode(0), prefill(1, 9)))
    target = got.target
    assert (target.shape.query_len, target.mode, target.reason) == (None, GraphMode.PIECEWISE, Reason.DISABLED_BY_USER)
    assert got.query_start_loc == (0, 1, 10)
    assert (target.num_tokens_padded, target.num_reqs_padded) == (16, 8)


def test_an_eager_step_has_no_padding() -> None:
    got = plan(batch(prefill(0, 5), prefill(1, 6)), GraphPolicy.NONE)
    target = got.target
    assert (target.key, target.num_tokens_padded, target.num_reqs_padded, got.max_query_len) == (None, 11, 2, 6)


def test_the_strongest_sampler_of_those_that_sample_is_planned() -> None:
    warm = SamplingParams(temperature=1.0)
    assert plan(batch(decode(0), decode(1, params=warm))).target.shape.sampler is SamplerVariant.TEMPERATURE
    filtered = SamplingParams(temperature=1.0, top_k=4)
    both = batch(decode(0, params=filtered), decode(1, params=warm))
    assert plan(both).target.shape.sampler is SamplerVariant.FILTERED
    chunk = prefill(2, 4, params=filtered, samples=False)
    assert plan(batch(decode(0), chunk)).target.shape.sampler is SamplerVariant.GREEDY


def test_a_sampler_that_no_graph_holds_runs_after_it_and_is_recorded() -> None:
    biased = SamplingParams(temperature=0.0, logit_bias=((3, 1.0),))
    got = plan(batch(decode(0), decode(1, params=biased)))
    target = got.target
    assert (target.mode, target.shape.sampler, got.sample_in_graph) == (GraphMode.FULL, SamplerVariant.GENERAL, False)
    assert target.reason is Reason.SAMPLER_VARIANT


def test_logprobs_are_planned_for_the_request_that_wants_most() -> None:
    few, many = SamplingParams(temperature=0.0, logprobs=1), SamplingParams(temperature=0.0, logprobs=5)
    assert plan(batch(decode(0), decode(1))).max_logprobs is None
    assert plan(batch(decode(0, params=few), decode(1, params=many), decode(2))).max_logprobs == 5
    assert plan(batch(prefill(0, 3, params=many, samples=False))).max_logprobs is None


def test_prompt_logprobs_need_hidden_states_until_the_prompt_is_done() -> None:
    params = SamplingParams(temperature=0.0, prompt_logprobs=2)
    got = plan(batch(decode(0), prefill(1, 3, params=params, next_prompt_token_ids=(8, 9))), GraphPolicy.FULL)
    target = got.target
    assert (got.prompt_logprobs, target.mode) == ((None, 2), GraphMode.EAGER)
    assert target.reason is Reason.FEATURE_INCOMPATIBLE
    assert plan(batch(decode(1, params=params)), GraphPolicy.FULL).target.mode is GraphMode.FULL


def test_host_integers_are_asked_for_the_batch_at_hand() -> None:
    asked = []

    def key_ints(num_reqs: int, query_len: int | None, max_seq_len: int) -> tuple[tuple[str, int], ...]:
        asked.append((num_reqs, query_len, max_seq_len))
        return (("splits", 2),)

    planner, catalog = engine_of()
    got = Planner(limits=planner.limits, key_ints=key_ints).plan(
        batch(decode(0, computed=10), decode(1, computed=40)), catalog
    )
    target = got.target
    assert asked == [(2, 1, 41)]
    assert target.shape.key_ints == (("splits", 2),)
    assert (target.mode, target.reason) == (GraphMode.PIECEWISE, Reason.BACKEND_DECLINED)


def host_only(value: object) -> bool:
    """Whether a value is made of host values alone."""
    if value is None or isinstance(value, (bool, int, str)):
        return True
    if isinstance(value, tuple):
        return all(host_only(item) for item in value)
    return is_dataclass(value) and all(host_only(getattr(value, field.name)) for field in fields(value))


def test_a_plan_is_a_frozen_hashable_value() -> None:
    got = plan(batch(decode(0)))
    with pytest.raises(FrozenInstanceError):
        got.target = got.target
    with pytest.raises(FrozenInstanceError):
        got.target.mode = GraphMode.EAGER
    assert got == plan(batch(decode(0)))
    assert len({got, plan(batch(decode(0))), plan(batch(decode(1)))}) == 2


PARAMS = (
    GREEDY,
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=0.7, top_p=0.5),
    SamplingParams(temperature=0.0, presence_penalty=1.0),
    SamplingParams(temperature=0.0, logprobs=3),
    SamplingParams(temperature=0.0, prompt_logprobs=1),
)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(GraphPolicy),
    st.sampled_from(GraphSupport),
    st.lists(st.integers(1, 30), min_size=1, max_size=10),
    st.lists(st.sampled_from(PARAMS), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(0, 24),
    st.sampled_from([12, 20, 65]),
    st.booleans(),
)
def test_every_batch_of_the_real_scheduler_is_planned_soundly(
    policy: GraphPolicy,
    level: GraphSupport,
    prompt_lens: list[int],
    params: list[SamplingParams],
    max_num_seqs: int,
    spare_tokens: int,
    num_blocks: int,
    prefix_caching: bool,
) -> None:
    max_num_batched_tokens = max_num_seqs + spare_tokens
    planner, catalog = engine_of(
        policy, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, level=level
    )
    load = Load(
        prompt_lens,
        params=params,
        num_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefix_caching=prefix_caching,
    )
    for scheduled in load.batches():
        got = planner.plan(scheduled, catalog)
        target = got.target
        requests = scheduled.requests
        assert host_only(got)
        assert hash(got) == hash(planner.plan(scheduled, catalog))
        assert got.query_start_loc[-1] == scheduled.num_tokens <= target.num_tokens_padded <= max_num_batched_tokens
        assert len(requests) <= target.num_reqs_padded <= max_num_seqs
        assert (target.shape.query_len == 1) == all(request.is_decode for request in requests)
        wanted = catalog.policy.given_mode(target.shape.query_len)
        if target.shape.needs_hidden_states and wanted is GraphMode.FULL:
            assert target.mode is not GraphMode.FULL
        else:
            assert target.mode is wanted, "nothing falls off the end"
        assert target.reason is not None or (target.mode is GraphMode.FULL and got.sample_in_graph)
        if target.key is not None and target.key.query_len is not None:
            assert all(request.is_decode and request.query_len == target.key.query_len for request in requests)


def test_a_recomputation_that_ends_with_one_token_is_not_a_decode() -> None:
    """Two requests outgrow the pool; the second is computed again in chunks, the last of which is one token."""
    planner, catalog = engine_of(max_num_seqs=2, max_num_batched_tokens=4)
    load = Load([8, 9], max_tokens=16, num_blocks=8, max_num_seqs=2, max_num_batched_tokens=4)
    lone_recomputations = 0
    for scheduled in load.batches():
        got = planner.plan(scheduled, catalog)
        target = got.target
        for request in scheduled.requests:
            recomputed = not request.is_decode and request.query_len == 1 and request.num_output_tokens > 0
            lone_recomputations += recomputed
            if recomputed:
                assert target.shape.query_len is None
                assert target.mode is GraphMode.PIECEWISE
    assert load.scheduler.stats().preemptions > 0
    assert lone_recomputations > 0


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 16), st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_a_batch_enters_a_uniform_graph_only_if_all_of_it_decodes(
    width: int, decodes: list[bool], data: st.DataObject
) -> None:
    requests = tuple(
        decode(row, width=width) if is_decode else prefill(row, width, computed=data.draw(st.integers(0, 9)))
        for row, is_decode in enumerate(decodes)
    )
    planner, catalog = engine_of(widths=tuple(sorted({1, width})))
    got = planner.plan(batch(*requests), catalog)
    target = got.target
    assert (target.shape.query_len == width) == all(decodes)
    assert (target.mode is GraphMode.FULL) == all(decodes)
    if not all(decodes):
        assert target.key is not None
        assert target.key.query_len is None


LAYERLESS, WITH_LAYERS = (Stage.DRAFT,), (Stage.EXTEND, Stage.DRAFT)


def test_a_uniform_round_is_one_graph_with_the_drafter_in_it() -> None:
    planner, catalog = engine_of(widths=(4,), draft_stages=WITH_LAYERS)
    got = planner.plan(batch(decode(0, width=4, num_drafts=3), decode(1, width=4, num_drafts=3)), catalog)
    target = got.target
    assert target.key is not None and target.key.stage is Stage.ROUND
    assert got.keys == (target.key,)
    assert got.num_drafts == (3, 3)
    [inside] = got.draft_stages
    assert (inside.stage, inside.mode, inside.key, inside.reason) == (Stage.DRAFT, GraphMode.FULL, None, None)


def test_a_mixed_round_extends_over_its_tokens_and_drafts_over_its_requests() -> None:
    planner, catalog = engine_of(widths=(4,), draft_stages=WITH_LAYERS)
    got = planner.plan(batch(decode(0, width=4, num_drafts=3), prefill(1, 9)), catalog)
    assert [(key.stage, key.mode) for key in got.keys] == [
        (Stage.TARGET, GraphMode.PIECEWISE),
        (Stage.EXTEND, GraphMode.PIECEWISE),
        (Stage.DRAFT, GraphMode.FULL),
    ]
    assert [key.num_tokens for key in got.keys] == [16, 16, 2]
    assert got.num_drafts == (3, 0)


def test_a_round_that_samples_outside_its_graph_drafts_in_graphs_behind_it() -> None:
    planner, catalog = engine_of(widths=(4,), draft_stages=WITH_LAYERS)
    general = SamplingParams(temperature=0.0, presence_penalty=1.0)
    got = planner.plan(batch(decode(0, width=4, params=general)), catalog)
    assert [(key.stage, key.mode, key.query_len) for key in got.keys] == [
        (Stage.TARGET, GraphMode.FULL, 4),
        (Stage.EXTEND, GraphMode.FULL, 4),
        (Stage.DRAFT, GraphMode.FULL, 1),
    ]
    assert got.target.reason is Reason.SAMPLER_VARIANT


def test_drafts_stay_full_where_verification_cannot_be() -> None:
    planner, catalog = engine_of(widths=(4,), draft_stages=WITH_LAYERS, level=GraphSupport.UNIFORM_SINGLE_TOKEN)
    got = planner.plan(batch(decode(0, width=4, num_drafts=3)), catalog)
    target = got.target
    assert (target.mode, target.reason) == (GraphMode.PIECEWISE, Reason.BACKEND_LEVEL)
    assert [stage.mode for stage in got.draft_stages] == [GraphMode.PIECEWISE, GraphMode.FULL]


def test_the_policy_piecewise_has_no_full_graph_anywhere_in_a_round() -> None:
    planner, catalog = engine_of(GraphPolicy.PIECEWISE, widths=(4,), draft_stages=WITH_LAYERS)
    for requests in ((decode(0, width=4, num_drafts=3),), (decode(0, width=4, num_drafts=3), prefill(1, 3))):
        got = planner.plan(batch(*requests), catalog)
        assert [key.mode for key in got.keys] == [GraphMode.PIECEWISE] * 3


@pytest.mark.parametrize("width", range(1, 17))
@settings(max_examples=10, deadline=None)
@given(
    policy=st.sampled_from(GraphPolicy),
    level=st.sampled_from(GraphSupport),
    stages=st.sampled_from([LAYERLESS, WITH_LAYERS]),
    prompt_lens=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    params=st.lists(st.sampled_from(PARAMS), min_size=1, max_size=4),
    max_num_seqs=st.integers(1, 6),
    spare_tokens=st.integers(0, 24),
)
def test_every_round_of_the_real_scheduler_is_planned_soundly(
    width: int,
    policy: GraphPolicy,
    level: GraphSupport,
    stages: tuple[Stage, ...],
    prompt_lens: list[int],
    params: list[SamplingParams],
    max_num_seqs: int,
    spare_tokens: int,
) -> None:
    budget = max_num_seqs * width + spare_tokens
    planner, catalog = engine_of(
        policy,
        widths=(width,),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        level=level,
        draft_stages=stages,
    )
    load = Load(
        prompt_lens,
        params=params,
        max_tokens=12,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        num_drafts=width - 1,
        num_blocks=65,
    )
    for scheduled in load.batches():
        got = planner.plan(scheduled, catalog)
        target = got.target
        assert host_only(got)
        assert scheduled.num_tokens <= target.num_tokens_padded <= budget
        assert len(scheduled.requests) <= target.num_reqs_padded <= max_num_seqs
        assert (target.shape.query_len == width) == all(request.is_decode for request in scheduled.requests)
        assert got.num_drafts == tuple(request.num_drafts for request in scheduled.requests)
        wanted = catalog.policy.given_mode(target.shape.query_len)
        assert target.mode is wanted or target.shape.needs_hidden_states, "nothing falls off the end"
        for stage in got.draft_stages:
            if target.key is not None and target.key.stage is Stage.ROUND:
                assert (stage.mode, stage.key) == (GraphMode.FULL, None)
                continue
            assert stage.mode is catalog.policy.given_mode(stage.shape.query_len, stage.stage)
            assert (stage.key is None) == (stage.mode is GraphMode.EAGER)
            assert stage.shape.num_tokens <= stage.num_tokens_padded <= budget
            assert stage.shape.num_reqs <= stage.num_reqs_padded <= max_num_seqs
