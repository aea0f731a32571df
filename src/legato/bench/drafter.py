"""A drafter on prompts that people wrote: how many drafts stand, and what that gains. Owns the rows' arithmetic.

Answers are greedy and end where the model ends them. Each engine answers the same prompts in a closed loop.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from legato.bench.contestant import DraftCounts, SteppedEngine
from legato.bench.request_loop import Asked, RequestLoop
from legato.bench.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterRow(Subject):
    """One drafter in one engine, with so many requests at once."""

    case: str
    method: str
    num_speculative_tokens: int | str
    """Drafts of a round; ``auto``: as the engine chose."""
    batch_size: int
    """Requests at once."""
    num_prompts: int
    max_tokens: int
    """Of an answer, which ends where the model ends it."""
    output_tokens: int
    seconds: float
    output_tok_per_s: float
    acceptance_length: float | None
    """Tokens that a round brought, the target's own counted; None: nothing was drafted."""
    acceptance_rates: tuple[float, ...]
    """[drafts of a round] share of the rounds in which the first, second, … draft stood."""
    plain_tok_per_s: float | None
    """Without the drafter, by the same engine on the same prompts; None where that was not measured."""
    over_plain: float | None
    """Times as many tokens per second as without the drafter."""
    same_as_plain: float | None
    """Share of the answers that are those without the drafter, token for token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterWorkload:
    """What is measured."""

    method: str
    num_speculative_tokens: int | str
    asked: tuple[Asked, ...]
    max_tokens: int
    """Of an answer; those to long prompts may have less room."""
    end_token_ids: frozenset[int]
    cases: tuple[tuple[str, int], ...]
    """(name, requests at once)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What an engine made of the prompts."""

    seconds: float
    token_ids: tuple[tuple[int, ...], ...]
    drafts: DraftCounts

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.token_ids))

    @property
    def tok_per_s(self) -> float:
        return self.num_tokens / self.seconds


def measure_drafter(
    drafting: SteppedEngine,
    plain: SteppedEngine | None,
    workload: DrafterWorkload,
    report: Callable[[int, str], None] = lambda *_: None,
) -> Iterator[DrafterRow]:
    """Yield a row per case; ``plain`` is the same engine without the drafter. ``report`` is told (cases done, next)."""
    for number, (case, batch_size) in enumerate(workload.cases):
        before = None
        if plain is not None:
            report(number, f"{plain.name}, {batch_size} at once")
            before = _answers(plain, workload, batch_size)
        report(number, f"{drafting.name}, {batch_size} at once")
        yield _row(drafting.subject, case, batch_size, workload, _answers(drafting, workload, batch_size), before)


def _answers(engine: SteppedEngine, workload: DrafterWorkload, batch_size: int) -> _Answers:
    """Answer as many prompts as run at once to warm up, then all of them."""
    loop, asked = RequestLoop(engine, workload.end_token_ids), workload.asked
    loop.run(asked[:batch_size], batch_size, lambda *_: None)
    before, started = engine.drafts(), time.perf_counter()
    answers = loop.run(asked, batch_size, lambda *_: None)
    return _Answers(
        seconds=time.perf_counter() - started,
        token_ids=tuple(tuple(answer.token_ids) for answer in answers),
        drafts=engine.drafts() - before,
    )


def _row(
    subject: Subject, case: str, batch_size: int, workload: DrafterWorkload, own: _Answers, plain: _Answers | None
) -> DrafterRow:
    return DrafterRow(
        **asdict(subject),
        case=case,
        method=workload.method,
        num_speculative_tokens=workload.num_speculative_tokens,
        batch_size=batch_size,
        num_prompts=len(workload.asked),
        max_tokens=workload.max_tokens,
        output_tokens=own.num_tokens,
        seconds=own.seconds,
        output_tok_per_s=own.tok_per_s,
        acceptance_length=own.drafts.acceptance_length,
        acceptance_rates=own.drafts.acceptance_rates,
        plain_tok_per_s=None if plain is None else plain.tok_per_s,
        over_plain=None if plain is None else own.tok_per_s / plain.tok_per_s,
        same_as_plain=None if plain is None else _same_share(own.token_ids, plain.token_ids),
    )


def _same_share(answers: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> float:
    return sum(one == other for one, other in zip(answers, others, strict=True)) / len(answers)
