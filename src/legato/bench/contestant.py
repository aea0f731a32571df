"""What takes part in a measurement. Owns the border between the measuring and the engines measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from legato.bench.subject import Subject

Prompts = Sequence[tuple[int, ...]]
"""[batch_size][input_len] token ids, all of one length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """How drafts were judged; nothing, where there were none or the engine does not tell."""

    num_judged: int = 0
    """Rounds of a request in which drafts were judged."""
    stood: tuple[int, ...] = ()
    """[drafts of a round] how often the first, second, … draft stood."""

    def __sub__(self, before: "DraftCounts") -> "DraftCounts":
        stood = tuple(late - early for late, early in zip_longest(self.stood, before.stood, fillvalue=0))
        return DraftCounts(num_judged=self.num_judged - before.num_judged, stood=stood)

    def __add__(self, other: "DraftCounts") -> "DraftCounts":
        stood = tuple(map(sum, zip_longest(self.stood, other.stood, fillvalue=0)))
        return DraftCounts(num_judged=self.num_judged + other.num_judged, stood=stood)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens that a round brought, the target's own counted; None: no drafts were judged."""
        return 1 + sum(self.stood) / self.num_judged if self.num_judged else None

    @property
    def acceptance_rates(self) -> tuple[float, ...]:
        """[drafts of a round] share of the rounds in which the first, second, … draft stood."""
        return tuple(stood / self.num_judged for stood in self.stood) if self.num_judged else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One batch, generated greedily to its full length. Seconds from the call."""

    first_token_s: float
    """When every request had its first token."""
    total_s: float
    token_ids: tuple[tuple[int, ...], ...]
    """[batch_size][output_len]"""
    host_ms_per_step: float | None = None
    """The host's own work in a step after the first token; None where it is not told apart from the device's."""
    num_steps: int | None = None
    """Steps after the first token; None where the engine does not tell."""
    drafts: DraftCounts = DraftCounts()
    together_ms: float | None = None
    """Milliseconds per output token of a request while all of them decoded; None where the engine does not tell.

    With drafts, requests of one length end one after the other, and the last ones decode in a smaller batch.
    """

    @property
    def round_ms(self) -> float | None:
        """Milliseconds of a step after the first token: of a round, where there are drafts."""
        return (self.total_s - self.first_token_s) * 1000 / self.num_steps if self.num_steps else None

    @property
    def tpot_ms(self) -> float:
        """Milliseconds per output token after the first one: what a reader waits for between two tokens."""
        return (self.total_s - self.first_token_s) * 1000 / max(1, len(self.token_ids[0]) - 1)


class Contestant(Protocol):
    """One engine, built and ready."""

    name: str
    """Unlike any other's in the same run."""
    subject: Subject

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate ``output_len`` tokens for each prompt, whatever the model's end tokens."""
        ...

    def counts(self) -> "StepCounts | None":
        """Return what the engine counted so far; None for one that keeps no record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Totals over an engine's steps since it was built."""

    steps: Mapping[str, int] = field(default_factory=dict)
    """'stage mode' -> steps."""
    padding_tokens: int = 0
    """Tokens computed only to fill a graph."""
    waited_s: float = 0.0
    """Seconds that the host waited for the device."""
    prefix_hits: int = 0
    """Tokens of prompts that a prefix cache had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTokens:
    """What one step brought for one request."""

    request_id: str
    token_ids: Sequence[int]
    finished: bool


class SteppedEngine(Protocol):
    """One engine that takes requests while it runs."""

    name: str
    subject: Subject

    def add(self, request_id: str, prompt: tuple[int, ...], output_len: int, end_token_ids: frozenset[int]) -> None:
        """Begin a request of ``output_len`` greedy tokens, or as many as there are to one of ``end_token_ids``."""
        ...

    def step(self) -> Sequence[NewTokens]:
        """Run until something is new, or one step, and return what is new."""
        ...

    def counts(self) -> StepCounts | None:
        """Return what the engine counted so far; None for one that keeps no record."""
        ...

    def drafts(self) -> DraftCounts:
        """Return how drafts were judged since the engine was built."""
        ...
