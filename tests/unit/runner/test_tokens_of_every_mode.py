"""Whatever a step runs as, its tokens are those of an eager engine that serves each request alone."""

from pathlib import Path

import pytest
import torch
from dense_oracle import dense_logprobs
from tiny_engine import VOCAB_SIZE, build, kv_bytes, request, run, tokens, write_config

from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.flow.request_update import FinishReason
from legato.graphs.modes import GraphPolicy
from legato.observability.reasons import Reason

POLICIES = tuple(str(policy) for policy in GraphPolicy)
BUDGETS = {"torch_sdpa": (4, 9, 32), "reference": (9,)}
"""Backend -> max_num_batched_tokens: a token for each request, chunks of odd lengths, whole prompts."""
SIZES = (2, 4, 8, 32)


def prompt(number: int, length: int) -> tuple[int, ...]:
    return tuple((number * 31 + position * 7 + position * position) % VOCAB_SIZE for position in range(length))


def greedy() -> list[Request]:
    lengths = (1, 5, 4, 13, 20, 8)
    return [
        request(f"greedy {number}", prompt(number, length), max_tokens=14, arrival=float(number))
        for number, length in enumerate(lengths)
    ]


def sampled() -> list[Request]:
    params: list[dict[str, object]] = [
        {"temperature": 1.0},
        {"temperature": 0.8, "top_p": 0.8},
        {"temperature": 1.3, "top_k": 7},
        {"temperature": 0.0},
        {"temperature": 1.0, "repetition_penalty": 1.3, "presence_penalty": 0.5},
        {"temperature": 1.0, "min_p": 0.1, "logit_bias": ((4, 2.0),)},
    ]
    return [
        request(f"sampled {number}", prompt(number + 9, 3 + number), seed=number, arrival=float(number), **given)
        for number, given in enumerate(params)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, list[int]]:
    """Tokens of each request, alone on an engine that has no graph and cuts no prompt."""
    core = build(folder, graph_policy="none", max_num_batched_tokens=64, prefix_caching=False)
    return {one.request_id: tokens(core, [one])[one.request_id] for one in greedy() + sampled()}


@pytest.fixture(
    scope="module",
    params=[(policy, backend, budget) for policy in POLICIES for backend in BUDGETS for budget in BUDGETS[backend]],
    ids=lambda combination: "-".join(map(str, combination)),
)
def core(folder: Path, request: pytest.FixtureRequest) -> EngineCore:
    """An engine whose pool is too small for four long requests, so that it preempts."""
    policy, backend, budget = request.param
    return build(
        folder,
        graph_policy=policy,
        attention_backend=backend,
        max_num_batched_tokens=budget,
        graph_sizes=SIZES,
        kv_cache_memory_bytes=kv_bytes(num_blocks=17, block_size=4),
    )


def test_each_request_alone_gets_its_tokens(core: EngineCore, alone: dict[str, list[int]]) -> None:
    for one in greedy()[:3]:
        assert tokens(core, [one])[one.request_id] == alone[one.request_id]


def test_a_batch_that_is_preempted_gets_its_tokens(core: EngineCore, alone: dict[str, list[int]]) -> None:
    before = core.stats().preemptions
    got = tokens(core, greedy())
    assert got == {name: alone[name] for name in got}
    assert core.stats().preemptions > before
    assert core.stats().kv_blocks_used == 0


def test_a_seed_gives_its_tokens_whatever_else_is_in_the_batch(core: EngineCore, alone: dict[str, list[int]]) -> None:
    got = tokens(core, sampled())
    assert got == {name: alone[name] for name in got}


def test_no_graph_was_dropped_and_each_class_of_batch_ran_as_promised(core: EngineCore) -> None:
    tokens(core, greedy())
    report = core.graph_report()
    assert report["dropped"] == []
    promised = {report["mixed"], report["uniform"]["1"]}
    ran = {record.mode for record in core.step_log.recent}
    # A budget beyond the user's sizes does not occur: the largest size is the largest budget.
    assert ran <= promised | ({"eager"} if core.config.scheduler.max_num_batched_tokens == 9 else set())
    for record in core.step_log.recent:
        assert record.mode == record.requested or record.reason is Reason.BATCH_TOO_LARGE


def test_sampled_requests_do_differ_from_greedy_ones(alone: dict[str, list[int]], folder: Path) -> None:
    core = build(folder, graph_policy="none")
    cold = tokens(core, [request("cold", one.prompt_token_ids) for one in sampled()[:1]])
    assert alone["sampled 0"] != cold["cold"]
    assert (
        tokens(core, [request("other", sampled()[0].prompt_token_ids, seed=77, temperature=1.0)])["other"]
        != (alone["sampled 0"])
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [5, 64])
def test_logprobs_are_those_of_a_dense_recomputation(folder: Path, policy: str, budget: int) -> None:
    core = build(folder, graph_policy=policy, max_num_batched_tokens=budget, graph_sizes=(1, 2, 4, 64))
    requests = [
        request("wants all", prompt(3, 11), logprobs=4, prompt_logprobs=2, max_tokens=6),
        request("wants few", prompt(4, 3), logprobs=0, max_tokens=6, temperature=1.0, seed=5),
        request("wants none", prompt(5, 7), max_tokens=6),
    ]
    results = run(core, requests)
    assert results["wants none"].logprobs == results["wants none"].prompt_logprobs == []
    for one in requests[:2]:
        result = results[one.request_id]
        known = [*one.prompt_token_ids, *result.token_ids]
        expected = dense_logprobs(core._runner._program.model, known)
        first = len(one.prompt_token_ids) - 1
        assert [entry.token_id for entry in result.logprobs] == result.token_ids
        for offset, entry in enumerate(result.logprobs):
            check(entry, expected[first + offset], one.params.logprobs)
        if one.params.prompt_logprobs is None:
            assert result.prompt_logprobs == []
            continue
        assert [entry.token_id for entry in result.prompt_logprobs] == list(one.prompt_token_ids[1:])
        for position, entry in enumerate(result.prompt_logprobs):
            check(entry, expected[position], one.params.prompt_logprobs)


def check(entry, expected: torch.Tensor, top_n: int) -> None:
    assert entry.logprob == pytest.approx(expected[entry.token_id].item(), abs=1e-4)
    assert entry.rank == 1 + int((expected > expected[entry.token_id] + 1e-4).sum())
    best = expected.topk(top_n)
    assert list(entry.top_ids) == best.indices.tolist()
    assert list(entry.top_logprobs) == pytest.approx(best.values.tolist(), abs=1e-4)


def test_prompt_logprobs_keep_a_step_out_of_full_graphs_with_a_reason(folder: Path) -> None:
    core = build(folder, graph_policy="full", graph_sizes=SIZES)
    run(core, [request("one", prompt(1, 6), prompt_logprobs=1, max_tokens=3)])
    first, *others = core.step_log.recent
    assert (first.requested, first.mode, first.reason) == ("full", "eager", Reason.FEATURE_INCOMPATIBLE)
    assert {record.mode for record in others} == {"full"}


def test_a_sampler_outside_the_graph_is_recorded(folder: Path) -> None:
    core = build(folder, graph_policy="full_decode_only", graph_sizes=SIZES)
    run(core, [request("one", prompt(1, 6), temperature=1.0, frequency_penalty=1.0, max_tokens=4)])
    decodes = list(core.step_log.recent)[1:]
    assert [(record.mode, record.reason) for record in decodes] == [("full", Reason.SAMPLER_VARIANT)] * 3


@pytest.mark.parametrize("policy", POLICIES)
def test_an_abort_in_flight_changes_nothing_for_the_others(
    folder: Path, policy: str, alone: dict[str, list[int]]
) -> None:
    core = build(folder, graph_policy=policy, max_num_batched_tokens=9, graph_sizes=SIZES)
    requests = greedy()
    for one in requests:
        core.add(one)
    got: dict[str, list[int]] = {one.request_id: [] for one in requests}
    victims, step = {3: "greedy 1", 6: "greedy 3", 8: "greedy 5"}, 0
    while core.has_work:
        step += 1
        for update in core.step():
            got[update.request_id] += update.token_ids
        if step in victims:
            (update,) = core.abort([victims[step], "unknown"])
            assert (update.request_id, update.finish_reason) == (victims[step], FinishReason.ABORT)
    for name, token_ids in got.items():
        expected = alone[name]
        assert token_ids == (expected[: len(token_ids)] if name in victims.values() else expected)
    assert core.stats().kv_blocks_used == 0
