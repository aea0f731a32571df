"""Scheduler -> plan: which requests run in this step, with how many tokens, and what changed in the rows.

A *row* is a request's permanent place in device state while it runs: it is assigned on admission and released on
finish or preemption. Row changes are applied before the step's requests are read.
"""

from dataclasses import dataclass

from msgspec import Struct

from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams
from legato.graphs.modes import SamplerVariant

PENDING = -1
"""Stands for the token that the step before samples, which the device takes from the request's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A request takes a row: new, or again after preemption."""

    row: int
    request: Request
    output_token_ids: tuple[int, ...]
    """Tokens generated before a preemption; they are computed again like prompt tokens."""
    num_computed_tokens: int
    """Tokens whose keys and values exist already, from the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAppend:
    """Blocks that join a row's block table at ``start``."""

    row: int
    start: int
    block_ids: tuple[int, ...]


class ScheduledRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One request's part of the step. A struct: it is made for each request at every step, ten times as fast."""

    request_id: str
    row: int
    num_computed_tokens: int
    """Tokens with keys and values before the step, the position of its first token. Of a decode behind a step whose
    drafts are not judged yet the most that it can be: the device knows."""
    token_ids: tuple[int, ...]
    """[query_len] the tokens fed; of a decode PENDING, as the device feeds its row's next tokens, known here or not."""
    is_decode: bool
    """All tokens but the last generated one were computed before: that one in, or it and drafts, at least one out."""
    samples: bool
    """The step reaches the last known token, so that it yields a new one."""
    num_output_tokens: int
    """Tokens generated before the step at least, one for each step in flight included."""
    sampler: SamplerVariant
    """What serves the request at this point of its output."""
    params: SamplingParams
    """The request's own, so that planning needs no other source."""
    num_drafts: int = 0
    """Of a decode: how many of the tokens behind its first are drafts that may stand. Not all need to: those of a
    request whose sampling depends on every token before are fed for the batch's shape alone."""
    next_token_id: int = PENDING
    """What follows the tokens fed where it is known, as within a prompt; PENDING: the step samples it."""
    next_prompt_token_ids: tuple[int, ...] = ()
    """Where prompt log-probabilities are asked for: the prompt tokens that follow the ones fed, one each."""

    @property
    def query_len(self) -> int:
        """Tokens that the request contributes to the step."""
        return len(self.token_ids)

    @property
    def seq_len(self) -> int:
        """Tokens whose keys and values exist after the step."""
        return self.num_computed_tokens + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledBatch:
    """One step's work. ``released_rows`` apply first, then ``admissions``, then ``block_appends``."""

    step: int
    requests: tuple[ScheduledRequest, ...]
    released_rows: tuple[int, ...]
    admissions: tuple[Admission, ...]
    block_appends: tuple[BlockAppend, ...]
    guided: bool = False
    """A guided request draws a token."""
    num_drafts: int | None = None
    """Drafts that a drafter makes for each request, and that each decode is fed; None: the most it makes."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all requests."""
        return sum(request.query_len for request in self.requests)
