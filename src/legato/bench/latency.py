"""Latency of several engines in one run. Owns the order of measuring and the arithmetic; knows no engine.

The engines take turns, A B A B, on the same prompts, so that whatever disturbs the machine disturbs all of them alike.
Speed-ups are taken pair by pair, within one turn.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from legato.bench.contestant import Contestant, Prompts, Timing


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
class LatencyRow:
    """One engine at one batch size; medians over the turns."""

    engine: str
    batch_size: int
    input_len: int
    output_len: int
    turns: int
    prefill_ms: float
    ms_per_token: float
    tokens_per_s: float
    """Output tokens of the whole batch per second of the whole call."""
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
    seed: int = 0


def measure(
    contestants: Sequence[Contestant], workload: Workload, report: Callable[[str], None] = lambda _: None
) -> list[LatencyRow]:
    """Measure every engine at every batch size, in turns. ``report`` is told which turn begins."""
    prompts = _fresh_prompts(workload)
    rows: list[LatencyRow] = []
    for batch_size in workload.batch_sizes:
        timings: dict[str, list[Timing]] = {contestant.name: [] for contestant in contestants}
        for turn in range(-workload.warmup, workload.turns):
            report(f"batch size {batch_size}, {'warm-up' if turn < 0 else f'turn {turn + 1} of {workload.turns}'}")
            batch = [next(prompts) for _ in range(batch_size)]
            for contestant in contestants:
                timing = contestant.generate(batch, workload.output_len)
                if turn >= 0:
                    timings[contestant.name].append(timing)
        rows += [_row(contestant, timings, batch_size, workload) for contestant in contestants]
    return rows


def _fresh_prompts(workload: Workload) -> Iterator[tuple[int, ...]]:
    """Yield random prompts, no two alike: a prefix cache finds nothing."""
    generator = random.Random(workload.seed)
    while True:
        yield tuple(generator.randrange(workload.vocab_size) for _ in range(workload.input_len))


def _row(contestant: Contestant, timings: dict[str, list[Timing]], batch_size: int, workload: Workload) -> LatencyRow:
    own = timings[contestant.name]
    return LatencyRow(
        engine=contestant.name,
        batch_size=batch_size,
        input_len=workload.input_len,
        output_len=workload.output_len,
        turns=len(own),
        prefill_ms=median(timing.first_token_s * 1000 for timing in own),
        ms_per_token=median(timing.ms_per_token for timing in own),
        tokens_per_s=median(batch_size * workload.output_len / timing.total_s for timing in own),
        speed_ups=tuple(speed_up(other, own, timings[other]) for other in timings if other != contestant.name),
        graph_steps=dict(contestant.graph_steps()),
    )


def speed_up(over: str, own: Sequence[Timing], others: Sequence[Timing]) -> SpeedUp:
    """Compare two engines turn by turn."""
    pairs = list(zip(own, others, strict=True))
    return SpeedUp(
        over=over,
        total=_spread([other.total_s / timing.total_s for timing, other in pairs]),
        per_token=_spread([other.ms_per_token / timing.ms_per_token for timing, other in pairs]),
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
