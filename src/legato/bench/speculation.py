"""Speculation over acceptance, batch and number of drafts: one engine, plain decoding among its steps.

Owns the sweep and its arithmetic. The engine chooses its number of drafts per step; for the sweep it is made to take
each of them in turn, and to accept drafts at stated rates, so that all rows are of the same graphs on the same prompts.
Whether a draft stands is drawn by request and position: in one turn chance is the same for all numbers of drafts.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from legato.bench.contestant import Timing
from legato.bench.latency import median_or_none
from legato.bench.legato_contestant import LegatoContestant
from legato.bench.prompts import fresh_prompts
from legato.bench.subject import Subject
from legato.config.speculative import SpeculativeConfig, rates_of_length

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRow(Subject):
    """One number of drafts at one acceptance and batch size; medians over the turns."""

    case: str
    """``ngram-a2.8-k3-b8``."""
    method: str
    text_acceptance_length: float
    """How predictable the text was made: tokens that a round with the most drafts would yield in the mean."""
    num_speculative_tokens: int | str
    """Drafts of each decode; ``auto``: as the engine chose."""
    batch_size: int
    input_len: int
    output_len: int
    turns: int
    tpot_ms: float
    """Milliseconds per token of a request, while all requests of the batch decoded."""
    round_ms: float | None
    acceptance_length: float | None
    """Tokens of a round, as they came; None: nothing was drafted."""
    output_tok_per_s: float
    """Of the whole batch, while all of it decoded."""
    over_plain: float
    """Times as many tokens per second as without drafts in the same turn."""
    over_best: float
    """The same, to the fixed number of drafts that was best over all turns, none among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is measured."""

    lengths: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    numbers: tuple[int, ...]
    """Fixed numbers of drafts; 0 is measured in any case."""
    input_len: int
    output_len: int
    turn_tokens: int
    """Tokens of a turn at least: few requests have longer outputs, as chance evens out over tokens."""
    turns: int
    warmup: int
    """Turns before those that count, of each kind; the engine learns in them what to choose."""
    vocab_size: int
    seed: int = 0

    def length_of(self, batch_size: int) -> int:
        """Return the tokens that each request generates."""
        return max(self.output_len, -(-self.turn_tokens // batch_size))

    @property
    def kinds(self) -> tuple[int | str, ...]:
        """Fixed numbers, and the engine's own choice."""
        return (*sorted({0, *self.numbers}), AUTO)

    @property
    def num_turns(self) -> int:
        """Turns in all."""
        return len(self.lengths) * len(self.batch_sizes) * len(self.kinds) * (self.turns + self.warmup)


def case_of(config: SpeculativeConfig, backend: str | None) -> str:
    """Return the name of rows with this drafter: ``eagle3-flashinfer-k3-a2.8``; ``backend`` where it was asked for."""
    parts = [config.method, backend, f"k{AUTO if config.chosen_per_step else config.num_speculative_tokens}"]
    if config.acceptance_rates:
        parts.append(f"a{config.synthetic_length:.4g}")
    return "-".join(part for part in parts if part)


def measure_speculation(
    engine: LegatoContestant, config: SpeculativeConfig, sweep: Sweep, report: Callable[[int, str], None]
) -> list[SpeculationRow]:
    """Measure every kind at every acceptance and batch size; kinds take turns on the same prompts."""
    done = itertools.count()
    rows: list[SpeculationRow] = []
    for length, batch_size in itertools.product(sweep.lengths, sweep.batch_sizes):
        engine.core.set_synthetic_acceptance(rates_of_length(length, config.num_speculative_tokens))
        prompts = fresh_prompts(sweep.seed, sweep.vocab_size, sweep.input_len)
        timings: dict[int | str, list[Timing]] = {kind: [] for kind in sweep.kinds}
        for turn in range(-sweep.warmup, sweep.turns):
            batch = [next(prompts) for _ in range(batch_size)]
            for kind in sweep.kinds:
                report(next(done), f"acceptance {length}, batch {batch_size}, drafts {kind}")
                engine.core.pin_drafts(kind if isinstance(kind, int) else None)
                engine.seed_from((sweep.seed + sweep.warmup + turn) * batch_size)
                timing = engine.generate(batch, sweep.length_of(batch_size))
                if turn >= 0:
                    timings[kind].append(timing)
        rows += _rows(engine.subject, config.method, length, batch_size, timings, sweep)
    engine.core.pin_drafts(None)
    return rows


def _rows(
    subject: Subject,
    method: str,
    length: float,
    batch_size: int,
    timings: dict[int | str, list[Timing]],
    sweep: Sweep,
) -> list[SpeculationRow]:
    tpot = {kind: [timing.together_ms or timing.tpot_ms for timing in turns] for kind, turns in timings.items()}
    best = min((kind for kind in tpot if kind != AUTO), key=lambda kind: sum(tpot[kind]))
    return [
        SpeculationRow(
            **asdict(subject),
            case=f"{method}-a{length:g}-k{kind}-b{batch_size}",
            method=method,
            text_acceptance_length=length,
            num_speculative_tokens=kind,
            batch_size=batch_size,
            input_len=sweep.input_len,
            output_len=sweep.length_of(batch_size),
            turns=len(turns),
            tpot_ms=median(tpot[kind]),
            round_ms=median_or_none([timing.round_ms for timing in turns]),
            acceptance_length=median_or_none([timing.drafts.acceptance_length for timing in turns]),
            output_tok_per_s=batch_size * 1e3 / median(tpot[kind]),
            over_plain=_times_as_fast(tpot[kind], tpot[0]),
            over_best=_times_as_fast(tpot[kind], tpot[best]),
        )
        for kind, turns in timings.items()
    ]


def _times_as_fast(own: Sequence[float], other: Sequence[float]) -> float:
    """Compare milliseconds turn by turn."""
    return median(theirs / ours for ours, theirs in zip(own, other, strict=True))
