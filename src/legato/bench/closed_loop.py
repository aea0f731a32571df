"""Throughput in a closed loop: so many requests at once, a new one when one ends. Owns the loop and its arithmetic.

Every prompt is random, no two alike, and every request ends at its full length, so that all engines do the same work.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median, quantiles

from legato.bench.contestant import StepCounts, SteppedEngine
from legato.bench.prompts import fresh_prompts
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


@dataclass(slots=True)
class _Request:
    """One request's life, in seconds of the loop's clock."""

    added: float
    first: float = 0.0
    last: float = 0.0
    num_tokens: int = 0


@dataclass(slots=True)
class _Loop:
    engine: SteppedEngine
    prompts: Iterator[tuple[int, ...]]
    output_len: int
    ids: Iterator[object] = field(default_factory=itertools.count)

    def run(self, num_requests: int, concurrency: int, report: Callable[[int, str], None]) -> list[_Request]:
        """Run so many requests, so many at once; ``report`` is told (how many have ended, "")."""
        queue = [next(self.prompts) for _ in range(num_requests)]
        running: dict[str, _Request] = {}
        ended: list[_Request] = []
        while queue or running:
            while queue and len(running) < concurrency:
                request_id = f"loop-{next(self.ids)}"
                running[request_id] = _Request(time.perf_counter())
                self.engine.add(request_id, queue.pop(), self.output_len)
            news = self.engine.step()
            now = time.perf_counter()
            for new in news:
                request = running[new.request_id]
                if new.num_tokens:
                    request.first = request.first or now
                    request.last = now
                    request.num_tokens += new.num_tokens
                if new.finished:
                    ended.append(running.pop(new.request_id))
                    report(len(ended), "")
        return ended


def measure_loop(
    engine: SteppedEngine, workload: LoopWorkload, report: Callable[[int, str], None] = lambda *_: None
) -> ThroughputRow:
    """Warm one engine up, then measure it; ``report`` is told (how many measured ones have ended, "")."""
    prompts = fresh_prompts(workload.seed, workload.vocab_size, workload.input_len)
    loop = _Loop(engine, prompts, workload.output_len)
    loop.run(workload.warmup_requests, workload.concurrency, lambda *_: None)
    before, started = engine.counts(), time.perf_counter()
    requests = loop.run(workload.num_requests, workload.concurrency, report)
    seconds = time.perf_counter() - started
    num_output = sum(request.num_tokens for request in requests)
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
        tpot_ms=Latencies.of([_seconds_per_token(request) for request in requests]),
        shares=shares_between(before, engine.counts(), num_input + num_output - len(requests), seconds),
    )


def run_once(engine: SteppedEngine, workload: LoopWorkload) -> None:
    """Run as many requests as run at once, without measuring them: for a profile, which would slow a measurement."""
    prompts = fresh_prompts(workload.seed + 1, workload.vocab_size, workload.input_len)
    loop = _Loop(engine, prompts, workload.output_len, map("profile-{}".format, itertools.count()))
    loop.run(workload.concurrency, workload.concurrency, lambda *_: None)


def _seconds_per_token(request: _Request) -> float:
    return (request.last - request.first) / max(1, request.num_tokens - 1)


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
