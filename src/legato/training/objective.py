"""What an unrolled head is held to: the loss that is minimised, and the acceptance that is wanted of it.

The loss of a step is the cross entropy of the head's distribution under the target's, both over the draft vocabulary,
at positions whose likeliest token can be drafted at all; further steps weigh less. Acceptance is that of greedy
decoding: draft ``i`` stands where it and all before it are the target's likeliest tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from legato.training.target import Lesson

STEP_WEIGHT = 0.8
"""Of a step's loss, relative to the step before: a later draft counts where the earlier ones stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a head is on texts that it was not trained on."""

    loss: float
    acceptance_rates: tuple[float, ...]
    """[steps] share of the positions at which draft i is right, of those at which all before it are."""

    def acceptance_length(self, num_drafts: int) -> float:
        """Return the tokens that a round of ``num_drafts`` drafts yields in the mean, the target's own included."""
        length, stands = 1.0, 1.0
        for rate in self.acceptance_rates[:num_drafts]:
            stands *= rate
            length += stands
        return length


def soft_cross_entropy(logits: torch.Tensor, probabilities: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the sum over ``counted`` rows of the cross entropy of ``logits`` under ``probabilities``.

    Both are [num_rows, draft_vocab_size], ``counted`` [num_rows] of 0 and 1.
    """
    each = -(probabilities * logits.float().log_softmax(-1)).sum(-1)
    return (each * counted).sum()


class Tally:
    """Sums over batches, kept on the device until they are asked for."""

    def __init__(self, num_steps: int, device: torch.device) -> None:
        self._loss = torch.zeros(num_steps, dtype=torch.float64, device=device)
        self._counted = torch.zeros(num_steps, dtype=torch.float64, device=device)
        self._right = torch.zeros(num_steps, dtype=torch.float64, device=device)
        self._reached = torch.zeros(num_steps, dtype=torch.float64, device=device)

    def add_loss(self, step: int, loss: torch.Tensor, counted: torch.Tensor) -> None:
        """Add the sum of a step's losses over so many positions, both scalars."""
        self._loss[step] += loss
        self._counted[step] += counted

    def add_drafts(
        self, drafts: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], lesson: Lesson, following: torch.Tensor
    ) -> None:
        """Count drafts that stand. ``drafts`` and ``rows`` of each step [num_rows of the step] int64.

        ``following`` [num_rows] int64 is the text's own token where the target says ``lesson``: where it is not the
        likeliest one, what comes after it says nothing of greedy decoding.
        """
        on_path = lesson.greedy == following
        reached = torch.ones_like(on_path)
        for step, (drafted, own) in enumerate(zip(drafts, rows, strict=True)):
            right = torch.zeros_like(reached)
            right[own] = reached[own] & (drafted == lesson.greedy[own + step])
            self._reached[step] += reached[own].sum()
            self._right[step] += right.sum()
            reached = right.clone()
            reached[own] &= on_path[own + step]

    def evaluation(self) -> Evaluation:
        """Return what was summed; waits for the device."""
        weights = STEP_WEIGHT ** torch.arange(len(self._loss), dtype=torch.float64)
        losses = (self._loss / self._counted.clamp(min=1)).cpu()
        rates = (self._right / self._reached.clamp(min=1)).tolist()
        return Evaluation(loss=float((weights * losses).sum()), acceptance_rates=tuple(rates))
