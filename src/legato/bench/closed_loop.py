"""Throughput in a closed loop: so many requests at once, a new one when one ends. Owns its arithmetic.

Every prompt is random, no two alike, and every request ends at its full length, so that all engines do the same work.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, quantiles

from legato.bench.contestant import StepCounts, SteppedEngine
from legato.bench.prompts import fresh_prompts
from legato.bench.request_loop import Asked, RequestLoop
from legato.bench.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWorkload:
    """What is measured."""

    case: str
    num_requests: int
    concurrency: int
    input_len: int
    output_len: int
    warmup_requests: int
    """Requests before them that do not count."""
    vocab_size: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """One latency over all requests, in milliseconds."""

    mean: float
    median: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latencies":
        """Return the summary of at least one value."""
        last = quantiles(seconds, n=100, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
        return cls(mean=fmean(seconds) * 1e3, median=median(seconds) * 1e3, p99=last * 1e3)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """How an engine's steps ran, as shares of all of them."""

    steps: int
    full: float
    piecewise: float
    eager: float
    padding: float
    """Of the tokens computed."""
    host_ms_per_step: float | None
    """The host's own work; None where it is not told apart from the device's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRow(Subject):
    """One engine in one closed loop."""

    case: str
    num_requests: int
    concurrency: int
    input_len: int
    output_len: int
    seconds: float
    total_tok_per_s: float
    """Tokens in and out."""
    output_tok_per_s: float
    requests_per_s: float
    ttft_ms: Latencies
    """From adding a request to its first token."""
    tpot_ms: Latencies
    """Of a request's tokens after the first one."""
    shares: StepShares | None
    """None for an engine that keeps no record."""


def measure_loop(
    engine: SteppedEngine, workload: LoopWorkload, report: Callable[[int, str], None] = lambda *_: None
) -> ThroughputRow:
    """Warm one engine up, then measure it; ``report`` is told (how many measured ones have ended, "")."""
    prompts = _prompts(workload, "")
    warmup, asked = (_drawn(prompts, n, workload.output_len) for n in (workload.warmup_requests, workload.num_requests))
    loop = RequestLoop(engine)
    loop.run(warmup, workload.concurrency, lambda *_: None)
    before, started = engine.counts(), time.perf_counter()
    requests = loop.run(asked, workload.concurrency, report)
    seconds = time.perf_counter() - started
    after = engine.counts()
    assert before is None or after is None or after.prefix_hits == before.prefix_hits, "a prompt was computed before"
    num_output = sum(len(request.token_ids) for request in requests)
    num_input = workload.num_requests * workload.input_len
    assert num_output == workload.num_requests * workload.output_len, "a request ended early"
    return ThroughputRow(
        **asdict(engine.subject),
        case=workload.case,
        num_requests=workload.num_requests,
        concurrency=workload.concurrency,
        input_len=workload.input_len,
        output_len=workload.output_len,
        seconds=seconds,
        total_tok_per_s=(num_input + num_output) / seconds,
        output_tok_per_s=num_output / seconds,
        requests_per_s=workload.num_requests / seconds,
        ttft_ms=Latencies.of([request.first - request.added for request in requests]),
        tpot_ms=Latencies.of([request.seconds_per_token for request in requests]),
        shares=shares_between(before, after, num_input + num_output - len(requests), seconds),
    )


def run_once(engine: SteppedEngine, workload: LoopWorkload) -> None:
    """Run as many requests as run at once, without measuring them: for a profile, which would slow a measurement."""
    prompts = _prompts(workload, "profile")
    asked = _drawn(prompts, workload.concurrency, workload.output_len)
    RequestLoop(engine, name="profile").run(asked, workload.concurrency, lambda *_: None)


def _prompts(workload: LoopWorkload, purpose: str) -> Iterator[tuple[int, ...]]:
    """Yield prompts unlike those of other loops: one engine serves several, and may keep what it has computed."""
    seed = f"{workload.seed} {workload.case} {purpose}"
    return fresh_prompts(seed, workload.vocab_size, workload.input_len)


def _drawn(prompts: Iterator[tuple[int, ...]], count: int, output_len: int) -> list[Asked]:
    return [Asked(prompt=next(prompts), output_len=output_len) for _ in range(count)]


def shares_between(
    before: StepCounts | None, after: StepCounts | None, num_tokens: int, seconds: float
) -> StepShares | None:
    """Return the shares between two counts, of steps that computed ``num_tokens`` tokens of requests."""
    if before is None or after is None:
        return None
    steps = {name: count - before.steps.get(name, 0) for name, count in after.steps.items()}
    by_mode = {mode: sum(n for name, n in steps.items() if name.endswith(f" {mode}")) for mode in _MODES}
    total, padding = sum(steps.values()), after.padding_tokens - before.padding_tokens
    waited_s = after.waited_s - before.waited_s
    return StepShares(
        steps=total,
        **{mode: count / total for mode, count in by_mode.items()},
        padding=padding / (num_tokens + padding),
        host_ms_per_step=(seconds - waited_s) * 1e3 / total if waited_s else None,
    )


_MODES = ("full", "piecewise", "eager")
