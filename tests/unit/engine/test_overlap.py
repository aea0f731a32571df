"""Overlapped steps give what the plain loop gives: the same tokens, ends and log-probabilities, and everything back."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_engine import VOCAB_SIZE, Result, build, kv_bytes, options, request, run, step, write_config

from legato.device.protocol import Device
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.engine.overlap import OverlappedEngineCore
from legato.flow.request import Request
from legato.flow.request_update import FinishReason
from legato.runner.model_runner import BegunStep, InFlightStep, ModelRunner

NUMBERS = count()
PARAMS = (
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 7, "top_p": 0.9},
    {"temperature": 1.0, "repetition_penalty": 1.4, "frequency_penalty": 0.6},
    {"presence_penalty": 1.5, "logit_bias": ((3, 4.0), (9, -2.0))},
    {"temperature": 1.0, "allowed_token_ids": tuple(range(12)), "bad_words_token_ids": ((3,), (4, 5), (6, 7, 8))},
    {"logprobs": 2},
    {"logprobs": 0, "temperature": 1.0, "prompt_logprobs": 1},
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, list[Request], int | None]]:
    """Draw (step of arrival, one request or siblings of one prompt, steps until the first of them is aborted)."""
    drawn = []
    for _ in range(draw(st.integers(1, 5))):
        prompt = [(draw(st.integers(0, 1)) * 40 + index * index) % 50 for index in range(draw(st.integers(1, 14)))]
        n, seed = draw(st.sampled_from((1, 1, 1, 3))), draw(st.integers(0, 99))
        max_tokens = draw(st.integers(1, 14))
        params = dict(draw(st.sampled_from(PARAMS)))
        if draw(st.booleans()):
            # Every third token ends the output, so that most ends are found out only when a step is read.
            params |= {"stop_token_ids": tuple(range(draw(st.integers(0, 2)), VOCAB_SIZE, 3))[:32]}
            params |= {"min_tokens": draw(st.integers(0, min(4, max_tokens)))}
        number = next(NUMBERS)
        group = f"{number}" if n > 1 else None
        siblings = [
            replace(
                request(f"{number}.{index}", prompt, max_tokens=max_tokens, seed=seed + index, **params), group=group
            )
            for index in range(n)
        ]
        drawn.append((draw(st.integers(0, 12)), siblings, draw(st.none() | st.none() | st.integers(0, 12))))
    return drawn


def serve(core: EngineCore, load: Sequence[tuple[int, list[Request], int | None]]) -> dict[str, Result]:
    """Run a load, with its arrivals and aborts at their steps."""
    results: dict[str, Result] = {}
    aborted: set[str] = set()
    for number in range(600):
        for arrival, siblings, steps_to_abort in load:
            if arrival == number:
                for one in siblings:
                    results[one.request_id] = Result()
                    core.add(one)
            if steps_to_abort is not None and arrival + steps_to_abort == number:
                for update in core.abort([siblings[0].request_id]):
                    aborted.add(update.request_id)
                    results[update.request_id].finish_reason = FinishReason.ABORT
        if number > max(arrival for arrival, *_ in load) and not core.has_work:
            break
        step(core, results)
    else:
        raise AssertionError("requests do not come to an end")
    assert {name for name, result in results.items() if result.finish_reason is FinishReason.ABORT} == aborted
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used) == (0, 0, 0), "something was not given back"
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"))


CORES = {
    "roomy": {"graph_policy": "full_and_piecewise", "graph_sizes": (1, 4, 16)},
    "without prefix caching": {"graph_policy": "full_decode_only", "graph_sizes": (2, 4), "prefix_caching": False},
    # Seven blocks of four tokens: two long requests do not fit side by side.
    "tiny": {
        "graph_policy": "full",
        "graph_sizes": (4, 16),
        "kv_cache_memory_bytes": kv_bytes(num_blocks=8, block_size=4),
        "max_num_batched_tokens": 5,
        "max_model_len": 28,
    },
}


@pytest.fixture(scope="module", params=CORES)
def pair(folder: Path, request: pytest.FixtureRequest) -> tuple[EngineCore, EngineCore]:
    """The plain loop, and the overlapped one, over equal engines."""
    plain, overlapped = (build(folder, **CORES[request.param], overlap=overlap) for overlap in (False, True))
    assert type(plain) is EngineCore
    assert type(overlapped) is OverlappedEngineCore
    return plain, overlapped


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(load=arrivals())
def test_overlapped_steps_give_the_results_of_the_plain_loop(pair: tuple[EngineCore, EngineCore], load) -> None:
    expected, given = (serve(core, load) for core in pair)
    assert expected.keys() == given.keys()
    for name, result in expected.items():
        other = given[name]
        if FinishReason.ABORT in (result.finish_reason, other.finish_reason):
            # One loop is a step ahead of the other, so that an abort cuts at another token, or comes too late.
            length = min(len(result.token_ids), len(other.token_ids))
            assert result.token_ids[:length] == other.token_ids[:length]
            continue
        assert (result.token_ids, result.finish_reason) == (other.token_ids, other.finish_reason)
        for mine, theirs in ((result.logprobs, other.logprobs), (result.prompt_logprobs, other.prompt_logprobs)):
            assert [(entry.token_id, len(entry.top_ids)) for entry in mine] == [
                (entry.token_id, len(entry.top_ids)) for entry in theirs
            ]
            assert [entry.logprob for entry in mine] == pytest.approx([entry.logprob for entry in theirs], abs=1e-4)


def test_a_tiny_pool_preempts_in_flight_and_gives_the_tokens_of_a_large_one(folder: Path) -> None:
    requests = [request(str(number), [number] * 9, max_tokens=20, arrival=float(number)) for number in range(4)]
    large = build(folder, graph_policy="none")
    small = build(
        folder, graph_policy="none", overlap=True, kv_cache_memory_bytes=kv_bytes(num_blocks=17, block_size=4)
    )
    expected = {name: result.token_ids for name, result in run(large, requests).items()}
    assert {name: result.token_ids for name, result in run(small, requests).items()} == expected
    assert small.stats().preemptions > 0


def test_an_end_that_is_known_costs_no_step_and_one_that_is_not_costs_one(folder: Path) -> None:
    core = build(folder, graph_policy="none", overlap=True)
    free = run(core, [request("by length", [1, 2, 3], max_tokens=6)])["by length"].token_ids
    assert core.step_log.steps.total() == 6
    stop = next(token for token in free[1:5] if token not in free[:1])
    run(core, [request("by stop", [1, 2, 3], max_tokens=6, stop_token_ids=(stop,))])
    assert core.step_log.steps.total() == 6 + free.index(stop) + 1 + 1


def test_a_step_tells_what_the_one_before_computed(folder: Path) -> None:
    core = build(folder, graph_policy="none", overlap=True)
    core.add(request("one", [1, 2, 3], max_tokens=3))
    told = [[update.token_ids for update in core.step()] for _ in range(4)]
    assert [len(updates) for updates in told] == [0, 1, 1, 1]
    assert not core.has_work
    assert core.step() == []


def test_an_abort_of_all_requests_collects_the_step_in_flight(folder: Path) -> None:
    core = build(folder, graph_policy="none", overlap=True)
    core.add(request("gone", [1] * 9, max_tokens=9))
    core.step()
    assert core.stats().kv_blocks_used > 0
    (update,) = core.abort(["gone", "never was"])
    assert update.finish_reason is FinishReason.ABORT
    assert (core.has_work, core.stats().kv_blocks_used, core.step()) == (False, 0, [])
    assert core.step_log.steps.total() == 1, "the step in flight has left its record"


def test_the_next_request_on_a_row_is_not_touched_by_the_step_its_last_one_left_in_flight(folder: Path) -> None:
    plain, overlapped = (
        build(folder, max_num_seqs=1, graph_sizes=(1, 4), overlap=overlap) for overlap in (False, True)
    )
    load = [
        request(f"{number}", [number, 2, 3], max_tokens=9, seed=number, stop_token_ids=tuple(range(0, 96, 4)), **params)
        for number, params in enumerate(PARAMS)
    ]
    assert run(plain, load) == run(overlapped, load)


def test_what_is_not_said_is_decided_by_the_device(folder: Path) -> None:
    assert build(folder, graph_policy="none").config.overlap is False
    assert build(folder, graph_policy="none", overlap=True).config.overlap is True


@pytest.mark.parametrize("policy", ["none", "full_and_piecewise"])
def test_nothing_waits_for_the_device_between_launch_and_collect(
    folder: Path, device: Device, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a launch, whatever the requests ask for: admissions, preemptions, every sampler, log-probabilities."""
    begin, draw, num_launches = ModelRunner.begin, ModelRunner.draw, count(1)

    def watched_begin(self: ModelRunner, *arguments: object) -> BegunStep:
        next(num_launches)
        with device.forbid_waiting():
            return begin(self, *arguments)

    def watched_draw(self: ModelRunner, *arguments: object) -> InFlightStep:
        with device.forbid_waiting():
            return draw(self, *arguments)

    changes = {"device": device.facts.kind, "graph_policy": policy, "graph_sizes": (1, 4), "overlap": True}
    core = build_engine(options(folder, **changes, kv_cache_memory_bytes=kv_bytes(num_blocks=17, block_size=4)))
    load = [
        request(f"{number}", [number, *range(9)], max_tokens=12, seed=number, **params)
        for number, params in enumerate(PARAMS)
    ]
    warm_up = run(core, load)
    monkeypatch.setattr(ModelRunner, "begin", watched_begin)
    monkeypatch.setattr(ModelRunner, "draw", watched_draw)
    assert run(core, load).keys() == warm_up.keys()
    assert core.stats().preemptions > 0
    assert next(num_launches) > 20


def test_a_launch_leaves_the_staging_arrays_of_the_one_before_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, used = ModelRunner.begin, []

    def watched_begin(self: ModelRunner, *arguments: object) -> BegunStep:
        begun = begin(self, *arguments)
        used.append({buffer.host.data_ptr() for buffer in self._program.buffers.inputs})
        return begun

    core = build(folder, graph_policy="none", overlap=True)
    monkeypatch.setattr(ModelRunner, "begin", watched_begin)
    run(core, [request("one", [1, 2, 3], max_tokens=6)])
    assert len(used) == 6
    for before, after in pairwise(used):
        assert before.isdisjoint(after)
