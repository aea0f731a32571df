"""A batch decodes steadily, so that most of a step is as it was in the last one; then something happens to it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_engine import Result, build, kv_bytes, request, run, step, write_config

from legato.engine.core import EngineCore
from legato.flow.request import Request

STEADY = {f"steady-{index}": [index * 7 + 1, 3, index + 5] for index in range(3)}
STEADY_STEPS = 6
FEW_BLOCKS = 17
"""Too few for three requests, or two and a newcomer."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("steady"))


@pytest.fixture(scope="module")
def eager(folder: Path) -> EngineCore:
    """An engine that is given one request at a time."""
    return build(folder, graph_policy="none", prefix_caching=False)


@pytest.fixture(scope="module", params=[(False, 65), (False, FEW_BLOCKS), (True, 65), (True, FEW_BLOCKS)], ids=str)
def core(folder: Path, request: pytest.FixtureRequest) -> EngineCore:
    overlap, num_blocks = request.param
    return build(
        folder,
        graph_policy="full_decode_only",
        graph_sizes=(2, 4),
        scheduling_policy="priority",
        overlap=overlap,
        prefix_caching=False,
        kv_cache_memory_bytes=kv_bytes(num_blocks=num_blocks, block_size=4),
    )


def abort_the_first(core: EngineCore) -> list[Request]:
    core.abort(["steady-0"])
    return []


def abort_and_replace(core: EngineCore) -> list[Request]:
    """The newcomer gets the row of the one that left, so that the rows of the batch are the same as before."""
    core.abort(["steady-1"])
    return [request("new", [2, 4, 6], max_tokens=20)]


def add_an_urgent_one(core: EngineCore) -> list[Request]:
    return [replace(request("urgent", list(range(20)), max_tokens=12), priority=-1)]


def end_one_early(core: EngineCore) -> list[Request]:
    return [request("short", [9], max_tokens=2)]


def ask_for_logprobs(core: EngineCore) -> list[Request]:
    return [request("asks", [9, 8], max_tokens=4, logprobs=2, prompt_logprobs=1)]


def sample_with_penalties(core: EngineCore) -> list[Request]:
    return [request("general", [9, 8], max_tokens=6, repetition_penalty=1.3, temperature=1.0)]


@pytest.mark.parametrize(
    "happens",
    [abort_the_first, abort_and_replace, add_an_urgent_one, end_one_early, ask_for_logprobs, sample_with_penalties],
)
def test_what_happens_to_a_steady_batch_changes_no_tokens(
    core: EngineCore, eager: EngineCore, happens: Callable[[EngineCore], list[Request]]
) -> None:
    """With few blocks, requests are preempted before they end."""
    preemptions_before = core.stats().preemptions
    steady = [request(name, prompt, max_tokens=24) for name, prompt in STEADY.items()]
    results = {one.request_id: Result() for one in steady}
    for one in steady:
        core.add(one)
    for _ in range(STEADY_STEPS):
        step(core, results)
    later = happens(core)
    for one in later:
        core.add(one)
        results[one.request_id] = Result()
    while core.has_work:
        step(core, results)
    few_blocks = core.stats().kv_blocks_total < FEW_BLOCKS
    was_preempted = core.stats().preemptions > preemptions_before
    assert was_preempted == (few_blocks and happens is not abort_the_first)
    for one in [*steady, *later]:
        expected, got = run(eager, [one])[one.request_id].token_ids, results[one.request_id]
        if got.finish_reason is None:  # aborted
            assert STEADY_STEPS - 1 <= len(got.token_ids) <= STEADY_STEPS
            expected = expected[: len(got.token_ids)]
        assert got.token_ids == expected
