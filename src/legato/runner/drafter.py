"""The border between the runner and drafters. Owns the shapes that cross it; knows no drafter.

A round of speculative decoding is one step of the engine: the target verifies the drafts of the round before, and the
drafter makes those of the next. Its drafter part has two passes, in one graph or in one each:

``extend``   over the step's flat tokens, as the target saw them, where a drafter has layers of its own to bring up
             to date; it leaves a state for every token
``propose``  over the step's requests: from each request's last token that stands, drafts for the next round

Neither may ask the host. Whatever a drafter leaves at places past the tokens that stand is written over by the next
round, as it is in the target's own layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from legato.attention.protocol import AttentionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlaces:
    """Whose tokens a step's are."""

    rows: torch.Tensor  # [num_tokens] int64, of each token's request; of padding, the null row
    offsets: torch.Tensor  # [num_tokens] int64, index of each token among its request's in this step


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTokens:
    """The step's flat tokens, padding included, with what is known of them once the target has sampled."""

    input_ids: torch.Tensor  # [num_tokens] int64, what the target was fed
    next_ids: torch.Tensor  # [num_tokens] int64, what follows each: of the same run, or what was sampled there
    positions: torch.Tensor  # [num_tokens] int64, within the model's positions
    hidden: torch.Tensor  # [num_tokens, hidden_size], the target's final hidden states
    auxiliary: torch.Tensor  # [num_tokens, num_auxiliary_layers * hidden_size], side by side in the drafter's order
    context: AttentionContext
    """Attention of these tokens, for the drafter's own layers: places and blocks are the target's."""
    places: Callable[[], TokenPlaces]
    """Computed for a drafter that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPass:
    """One token of each request, behind those that the step left."""

    positions: torch.Tensor  # [num_reqs] int64, within the model's positions
    context: AttentionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRequests:
    """The step's requests, padding included, with what they have come to. A padded request is on the null row.

    A request whose prompt goes on in a later step takes part too; its drafts are not used, and may be anything.
    """

    num_drafts: int
    """Drafts to be made: the drafter's own number at most. A drafter that has no ``extend`` is asked for none, too, so
    that it sees all tokens; the others miss those of steps that make none."""
    rows: torch.Tensor  # [num_reqs] int64
    sampled: torch.Tensor  # [num_reqs, width] int64, the new tokens of each, and what does not count
    num_sampled: torch.Tensor  # [num_reqs] int64, how many of them count: 1 to width
    next_tokens: torch.Tensor  # [num_reqs] int64, the last one that counts: the token that each request goes on with
    next_positions: torch.Tensor  # [num_reqs] int64, its position, which may lie past the model's
    state: torch.Tensor | None  # [num_reqs, state_size], what ``extend`` left at the token before it; None: no extend
    """A copy, which the drafter may write over."""
    token_pass: Callable[[int], TokenPass]
    """Of ``i``: one token of each request at ``next_positions + i``, for the drafter's own layers."""


class Drafter(Protocol):
    """Makes drafts on the device. Built once for an engine; everything it keeps has a fixed address."""

    num_drafts: int
    """k: most drafts in a round."""
    state_size: int
    """Width of what ``extend`` leaves for each token; 0: the drafter has no such pass."""
    auxiliary_layers: tuple[int, ...]
    """Target layers of which it wants the residual as it goes in, before any norm."""

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Begin a request on ``row`` with all its known tokens; launches work and never waits."""
        ...

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Bring the drafter's layers up to date; return [num_tokens, state_size]. Not called where that is 0."""
        ...

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return the drafts after ``next_tokens``.  # [num_reqs, requests.num_drafts] int64, within the vocabulary"""
        ...

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that graphs read or write beside weights and caches, by name."""
        ...
