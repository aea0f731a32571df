"""Latency of several engines in one run. Owns the order of measuring and the arithmetic; knows no engine.

The engines take turns, A B A B, on the same prompts, so that whatever disturbs the machine disturbs all of them alike.
Speed-ups are taken pair by pair, within one turn.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from legato.bench.contestant import Contestant, DraftCounts, Prompts, Timing
from legato.bench.prompts import fresh_prompts
from legato.bench.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A ratio over all turns."""

    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """How many times faster an engine was than another one in the same turn."""

    over: str
    total: Spread
    """Of the whole call, prefill included."""
    per_token: Spread
    """Of the time between two tokens."""
    equal_tokens: float
    """Share of output tokens that are the same, position by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow(Subject):
    """One engine at one batch size; medians over the turns."""

    case: str
    """What is compared between engines and runs: ``decode-b1``."""
    name: str
    """How the engine is called in this run, where a graph policy may be part of it."""
    batch_size: int
    input_len: int
    output_len: int
    turns: int
    prefill_ms: float
    tpot_ms: float
    """Milliseconds per output token after the first one."""
    host_ms_per_step: float | None
    """The host's own work in a step; None where it is not told apart from the device's."""
    output_tok_per_s: float
    """Output tokens of the whole batch per second of the whole call."""
    round_ms: float | None = None
    """Milliseconds of a step after the first token; a round, where there are drafts."""
    acceptance_length: float | None = None
    """Tokens that a round brought, the target's own counted; None: no drafts, or the engine does not tell."""
    acceptance_rates: tuple[float, ...] = ()
    """[drafts of a round] share of the rounds in which the first, second, … draft stood."""
    speed_ups: tuple[SpeedUp, ...]
    """Over each of the other engines."""
    graph_steps: dict[str, int]
    """'stage mode' -> steps of this engine since it was built, where it keeps record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is measured, and how often."""

    batch_sizes: tuple[int, ...]
    input_len: int
    output_len: int
    turns: int
    warmup: int
    vocab_size: int
    case_prefix: str = "decode"
    """A batch of 8 is the case ``decode-b8``."""
    seed: int = 0

    @property
    def num_turns(self) -> int:
        """Turns in all, those of the warm-up included."""
        return len(self.batch_sizes) * (self.warmup + self.turns)


def measure(
    contestants: Sequence[Contestant], workload: Workload, report: Callable[[int, str], None] = lambda *_: None
) -> list[LatencyRow]:
    """Measure every engine at every batch size, in turns. ``report`` is told (turns done, which one begins)."""
    done = itertools.count()
    prompts = fresh_prompts(workload.seed, workload.vocab_size, workload.input_len)
    rows: list[LatencyRow] = []
    for batch_size in workload.batch_sizes:
        timings: dict[str, list[Timing]] = {contestant.name: [] for contestant in contestants}
        for turn in range(-workload.warmup, workload.turns):
            report(next(done), f"batch size {batch_size}, {'warm-up' if turn < 0 else f'turn {turn + 1}'}")
            batch = [next(prompts) for _ in range(batch_size)]
            for contestant in contestants:
                timing = contestant.generate(batch, workload.output_len)
                if turn >= 0:
                    timings[contestant.name].append(timing)
        rows += [_row(contestant, timings, batch_size, workload) for contestant in contestants]
    return rows


def _row(contestant: Contestant, timings: dict[str, list[Timing]], batch_size: int, workload: Workload) -> LatencyRow:
    own, counts = timings[contestant.name], contestant.counts()
    return LatencyRow(
        **asdict(contestant.subject),
        case=f"{workload.case_prefix}-b{batch_size}",
        name=contestant.name,
        batch_size=batch_size,
        input_len=workload.input_len,
        output_len=workload.output_len,
        turns=len(own),
        prefill_ms=median(timing.first_token_s * 1000 for timing in own),
        tpot_ms=median(timing.tpot_ms for timing in own),
        host_ms_per_step=median_or_none([timing.host_ms_per_step for timing in own]),
        output_tok_per_s=median(batch_size * workload.output_len / timing.total_s for timing in own),
        round_ms=median_or_none([timing.round_ms for timing in own]),
        acceptance_length=median_or_none([timing.drafts.acceptance_length for timing in own]),
        acceptance_rates=sum((timing.drafts for timing in own), DraftCounts()).acceptance_rates,
        speed_ups=tuple(speed_up(other, own, timings[other]) for other in timings if other != contestant.name),
        graph_steps={} if counts is None else dict(counts.steps),
    )


def median_or_none(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def speed_up(over: str, own: Sequence[Timing], others: Sequence[Timing]) -> SpeedUp:
    """Compare two engines turn by turn."""
    pairs = list(zip(own, others, strict=True))
    return SpeedUp(
        over=over,
        total=_spread([other.total_s / timing.total_s for timing, other in pairs]),
        per_token=_spread([other.tpot_ms / timing.tpot_ms for timing, other in pairs]),
        equal_tokens=_equal_share([(timing.token_ids, other.token_ids) for timing, other in pairs]),
    )


def _spread(ratios: Sequence[float]) -> Spread:
    return Spread(median=median(ratios), min=min(ratios), max=max(ratios))


def _equal_share(pairs: Sequence[tuple[Prompts, Prompts]]) -> float:
    """Return the share of positions at which both have the same token."""
    equal = [
        token == other
        for outputs, others in pairs
        for output, other_output in zip(outputs, others, strict=True)
        for token, other in zip(output, other_output, strict=True)
    ]
    return sum(equal) / len(equal)
