"""Records of requests -> the figures of a run. Owns their definitions; knows no server and no table.

Latencies are those of requests that succeeded. TTFT: from sending to the first token. TPOT: a request's time per token
after the first. ITL: each gap between two chunks with tokens. E2E: from sending to the last token.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from legato.bench.closed_loop import Latencies
from legato.bench.serving.load import LoadResult
from legato.bench.serving.record import RequestRecord
from legato.errors import ConfigError

GOODPUT_MEASURES = ("ttft", "tpot", "e2e")
WINDOW_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Requests that kept to every target."""

    targets_ms: dict[str, float]
    requests_per_s: float
    share: float
    """Of all that were sent; a failed one is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """How alike requests got on: tokens per second of each, from its sending to its last token."""

    slowest_tok_per_s: float
    fastest_tok_per_s: float
    ratio: float
    """The fastest over the slowest; of requests of one length that are open together, 1 is fair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """What the client itself added, in milliseconds."""

    sent_late_ms: Latencies
    """Requests, after their time."""
    max_sent_late_ms: float
    loop_lag_ms: Latencies | None
    """Timers of the event loop, after their time: how stale a token's time may be."""
    max_loop_lag_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run came to."""

    num_requests: int
    completed: int
    failed: int
    unfinished: int
    """Given up when the run was broken off."""
    failures: dict[str, int]
    """Reason -> requests."""
    seconds: float
    input_tokens: int
    output_tokens: int
    tokens_counted_by: str
    """``server``, or ``chunks`` where a server does not tell: then the input counts as 0."""
    requests_per_s: float
    output_tok_per_s: float
    total_tok_per_s: float
    peak_concurrency: int
    peak_output_tok_per_s: float
    """Of the fullest second, counted from the start; of a shorter run, all of it."""
    ttft_ms: Latencies | None
    tpot_ms: Latencies | None
    itl_ms: Latencies | None
    e2e_ms: Latencies | None
    goodput: Goodput | None
    fairness: Fairness | None = None
    client: Lateness | None


def figures(result: LoadResult, targets_ms: Mapping[str, float]) -> Figures:
    """Return the figures of a run; ``targets_ms`` is ``parse_goodput``'s."""
    good = [record for record in result.records if record.failure is None]
    num_input, num_output = (sum(getattr(one, name) for one in good) for name in ("input_tokens", "output_tokens"))
    seconds = result.seconds or math.inf  # nothing ended: every rate is 0
    return Figures(
        num_requests=len(result.records) + result.unfinished,
        completed=len(good),
        failed=len(result.records) - len(good),
        unfinished=result.unfinished,
        failures=dict(Counter(one.failure for one in result.records if one.failure is not None).most_common()),
        seconds=result.seconds,
        input_tokens=num_input,
        output_tokens=num_output,
        tokens_counted_by="server" if all(one.counted_by_server for one in good) else "chunks",
        requests_per_s=len(good) / seconds,
        output_tok_per_s=num_output / seconds,
        total_tok_per_s=(num_input + num_output) / seconds,
        peak_concurrency=peak_concurrency(result.records),
        peak_output_tok_per_s=peak_output_tok_per_s(good, result.started, min(WINDOW_S, seconds)),
        ttft_ms=_latencies(record.ttft_s for record in good),
        tpot_ms=_latencies(record.tpot_s for record in good),
        itl_ms=_latencies(gap for record in good for gap in record.gaps_s),
        e2e_ms=_latencies(record.e2e_s for record in good if record.token_times),
        goodput=_goodput(result, targets_ms, seconds) if targets_ms else None,
        fairness=_fairness(good),
        client=_lateness(result),
    )


def parse_goodput(texts: Iterable[str]) -> dict[str, float]:
    """Parse ``ttft:200 tpot:20`` in milliseconds, by spaces, commas or apart. Raises ConfigError for anything else."""
    targets: dict[str, float] = {}
    for part in " ".join(texts).replace(",", " ").split():
        name, _, limit = part.partition(":")
        name = {"e2el": "e2e"}.get(name, name)
        try:
            targets[name] = float(limit)
        except ValueError:
            targets[name] = math.nan
        if name not in GOODPUT_MEASURES or not targets[name] > 0:
            details = {"requested": f"--goodput {part}", "options": "ttft:MS tpot:MS e2e:MS"}
            raise ConfigError("a target is a latency and milliseconds", details)
    return targets


def keeps_to(record: RequestRecord, targets_ms: Mapping[str, float]) -> bool:
    """Return whether a request succeeded within every target; one without a second token has no TPOT to miss."""
    if record.failure is not None:
        return False
    measured = {"ttft": record.ttft_s, "tpot": record.tpot_s, "e2e": record.e2e_s}
    return all((value := measured[name]) is None or value * 1e3 <= limit for name, limit in targets_ms.items())


def peak_concurrency(records: Iterable[RequestRecord]) -> int:
    """Return how many requests were open at once at most; one that ends when another begins is not."""
    changes = sorted(itertools.chain.from_iterable(((one.sent, 1), (one.ended, -1)) for one in records))
    return max(itertools.accumulate(change for _, change in changes), default=0)


def peak_output_tok_per_s(records: Iterable[RequestRecord], started: float, window_s: float = WINDOW_S) -> float:
    """Return the rate of the fullest window; a request's tokens are spread evenly over its chunks."""
    tokens: defaultdict[int, float] = defaultdict(float)
    for record in records:
        for arrived in record.token_times:
            tokens[int((arrived - started) / window_s)] += record.output_tokens / len(record.token_times)
    return max(tokens.values(), default=0.0) / window_s


def _goodput(result: LoadResult, targets_ms: Mapping[str, float], seconds: float) -> Goodput:
    kept = sum(keeps_to(record, targets_ms) for record in result.records)
    return Goodput(targets_ms=dict(targets_ms), requests_per_s=kept / seconds, share=kept / max(1, len(result.records)))


def _fairness(records: Iterable[RequestRecord]) -> Fairness | None:
    speeds = [record.output_tokens / record.e2e_s for record in records if record.token_times and record.output_tokens]
    if not speeds:
        return None
    slowest, fastest = min(speeds), max(speeds)
    return Fairness(slowest_tok_per_s=slowest, fastest_tok_per_s=fastest, ratio=fastest / slowest)


def _lateness(result: LoadResult) -> Lateness | None:
    late = [record.late_s for record in result.records]
    if not late:
        return None
    lags: Sequence[float] = result.loop_lags_s
    return Lateness(
        sent_late_ms=Latencies.of(late),
        max_sent_late_ms=max(late) * 1e3,
        loop_lag_ms=_latencies(lags),
        max_loop_lag_ms=max(lags, default=0.0) * 1e3,
    )


def _latencies(seconds: Iterable[float | None]) -> Latencies | None:
    known = [value for value in seconds if value is not None]
    return Latencies.of(known) if known else None
