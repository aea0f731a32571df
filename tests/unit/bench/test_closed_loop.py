"""The closed loop and its arithmetic, on an engine that counts steps, and on a clock that counts them too."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from legato.bench import closed_loop, request_loop
from legato.bench.closed_loop import Latencies, LoopWorkload, measure_loop, run_once
from legato.bench.contestant import DraftCounts, NewTokens, StepCounts
from legato.bench.subject import Subject

STEP_S = 0.01


class Ticking:
    """An engine with one token per request and step, and the clock of the loop: a step takes STEP_S."""

    name = "ticking"
    subject = Subject(engine="ticking", version="1", model="m", dtype="float32")

    def __init__(self, silent_steps: int = 0) -> None:
        self.now = 0.0
        self.left: dict[str, int] = {}
        self.prompts: list[tuple[int, ...]] = []
        self.hits = 0
        self.most = 0
        self.steps = 0
        self.silent_steps = silent_steps

    def perf_counter(self) -> float:
        return self.now

    def add(self, request_id: str, prompt: tuple[int, ...], output_len: int, end_token_ids: frozenset[int]) -> None:
        assert request_id not in self.left
        assert not end_token_ids, "outputs are of fixed lengths"
        self.hits += len(prompt) * (prompt in self.prompts)
        self.prompts.append(prompt)
        self.left[request_id] = output_len

    def step(self) -> Sequence[NewTokens]:
        self.steps += 1
        self.now += STEP_S
        self.most = max(self.most, len(self.left))
        if self.steps <= self.silent_steps:
            return []
        self.left = {request_id: left - 1 for request_id, left in self.left.items()}
        news = [NewTokens(request_id=name, token_ids=(7,), finished=left == 0) for name, left in self.left.items()]
        self.left = {request_id: left for request_id, left in self.left.items() if left}
        return news

    def counts(self) -> StepCounts:
        eager = min(self.steps, 10)
        return StepCounts(
            steps={"target eager": eager, "target full": self.steps - eager},
            padding_tokens=3 * self.steps,
            waited_s=self.now * 0.75,
            prefix_hits=self.hits,
        )

    def drafts(self) -> DraftCounts:
        return DraftCounts()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    engine = Ticking()
    for module in (closed_loop, request_loop):
        monkeypatch.setattr(module, "time", engine)
    return engine


WORKLOAD = LoopWorkload(
    case="closed-2", num_requests=6, concurrency=2, input_len=8, output_len=5, warmup_requests=4, vocab_size=100
)


def workload(**changes: object) -> LoopWorkload:
    return replace(WORKLOAD, **changes)


def test_as_many_requests_as_asked_for_run_at_once_until_the_last_ones(engine: Ticking) -> None:
    row = measure_loop(engine, workload(num_requests=7, concurrency=3, warmup_requests=3))
    assert engine.most == 3
    assert row.seconds == pytest.approx(3 * 5 * STEP_S)  # 7 requests in rounds of 3


def test_tokens_in_and_out_are_counted_over_the_measured_requests_alone(engine: Ticking) -> None:
    row = measure_loop(engine, workload())
    assert row.seconds == pytest.approx(15 * STEP_S)
    assert row.output_tok_per_s == pytest.approx(30 / 0.15)
    assert row.total_tok_per_s == pytest.approx((30 + 48) / 0.15)
    assert row.requests_per_s == pytest.approx(6 / 0.15)


def test_time_to_first_token_and_time_per_token_are_those_of_a_request(engine: Ticking) -> None:
    row = measure_loop(engine, workload())
    for latencies in (row.ttft_ms, row.tpot_ms):
        assert (latencies.mean, latencies.median, latencies.p99) == pytest.approx((10, 10, 10))


def test_no_prompt_comes_twice(engine: Ticking) -> None:
    measure_loop(engine, workload())
    assert len(engine.prompts) == len(set(engine.prompts)) == 10


def test_loops_over_one_engine_share_no_prompt(engine: Ticking) -> None:
    for concurrency in (2, 1):
        measure_loop(engine, workload(case=f"closed-{concurrency}", concurrency=concurrency))
    run_once(engine, workload())
    assert len(engine.prompts) == len(set(engine.prompts)) == 22


def test_a_loop_whose_prompts_were_computed_before_is_not_measured(engine: Ticking) -> None:
    measure_loop(engine, workload())
    with pytest.raises(AssertionError, match="computed before"):
        measure_loop(engine, workload())


def test_shares_are_those_of_the_measured_steps(engine: Ticking) -> None:
    shares = measure_loop(engine, workload()).shares
    assert shares is not None
    assert shares.steps == 15
    assert (shares.full, shares.eager, shares.piecewise) == (1.0, 0.0, 0.0)  # the 10 eager ones warmed up
    computed = 6 * (8 + 5 - 1)  # the last token of a request is never computed on
    assert shares.padding == pytest.approx(3 * 15 / (computed + 3 * 15))
    assert shares.host_ms_per_step == pytest.approx(2.5)


def test_progress_is_told_every_ended_request(engine: Ticking) -> None:
    told: list[int] = []
    measure_loop(engine, workload(), lambda done, _: told.append(done))
    assert told == [1, 2, 3, 4, 5, 6]


def test_a_step_that_brings_nothing_counts_into_the_time_of_the_first_token(
    engine: Ticking,
) -> None:
    engine.silent_steps = 2
    row = measure_loop(engine, workload(num_requests=2, warmup_requests=0))
    assert row.ttft_ms.mean == pytest.approx(30)
    assert row.tpot_ms.mean == pytest.approx(10)


def test_the_99th_percentile_of_one_value_is_that_value() -> None:
    assert Latencies.of([0.25]) == Latencies(mean=250, median=250, p99=250)


def test_the_99th_percentile_lies_between_the_two_largest_of_few_values() -> None:
    summary = Latencies.of([0.001 * n for n in range(1, 102)])
    assert summary.p99 == pytest.approx(100)
    assert summary.median == pytest.approx(51)
