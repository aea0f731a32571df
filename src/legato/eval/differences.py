"""Where the answers of two runs depart from each other. Owns what counts as a near-tie; steps no engine itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from legato.flow.step_output import TokenLogprobs
from legato.sampling.near_ties import NEAR_TIE, gap, scale, scores, tolerance

TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where one answer departs from that of the run it is compared with."""

    question: int
    position: int
    """First output token that differs."""
    expected: int | None
    """Token id there; None: that answer has ended."""
    given: int | None
    gap: float | None
    """By how much one token's log-probability beats the other's there; None: one of them is not among the best."""
    near_tie: bool
    """Both tokens are within rounding of the best one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One run's answers beside another's."""

    compared_with: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Departure:
    """The first token of an answer that is not the expected one; None: an answer has ended."""

    question: int
    position: int
    expected: int | None
    given: int | None


def departures(expected: Sequence[TokenIds], given: Sequence[TokenIds]) -> list[Departure]:
    """Return the first difference of each answer that has one."""
    found = []
    for question, (wanted, got) in enumerate(zip(expected, given, strict=True)):
        pairs = enumerate(zip_longest(wanted, got))
        first = next(((position, pair) for position, pair in pairs if pair[0] != pair[1]), None)
        if first is not None:
            position, (one, other) = first
            found.append(Departure(question, position, one, other))
    return found


def judged(departure: Departure, position: TokenLogprobs, *, dtype: str, vocab_size: int) -> Difference:
    """Return a departure with what the scores there say of it."""
    allowed = NEAR_TIE * tolerance(dtype, scale(position, vocab_size))
    one, other = departure.expected, departure.given
    named = scores(position)
    return Difference(
        question=departure.question,
        position=departure.position,
        expected=one,
        given=other,
        gap=abs(named[one] - named[other]) if one in named and other in named else None,
        # Two bad tokens may score alike: what ties is near the best one.
        near_tie=all(token is not None and gap(position, token) <= allowed for token in (one, other)),
    )
