"""What an unrolled head is held to: the loss that is minimised. Owns the formula and its sums.

The loss of a step is the cross entropy of the head's distribution under the target's, both over the draft vocabulary,
at positions whose likeliest token can be drafted at all; further steps weigh less.
"""

from typing import Any

import torch

STEP_WEIGHT = 0.8
"""Of a step's loss, relative to the step before: a later draft counts where the earlier ones stood."""


def soft_cross_entropy(logits: torch.Tensor, probabilities: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the sum over ``counted`` rows of the cross entropy of ``logits`` under ``probabilities``, float32.

    Both are [num_rows, draft_vocab_size], ``counted`` [num_rows] of 0 and 1. Only ``logits`` have a gradient.
    """
    loss: torch.Tensor = _SoftCrossEntropy.apply(logits, probabilities, counted)
    return loss


class _SoftCrossEntropy(torch.autograd.Function):
    """The gradient is written down where the loss is computed, in the logits' own dtype.

    Logits are larger than all else together. Autograd would keep several copies in float32 and go through each again.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, probabilities: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        log_likelihoods = logits.log_softmax(-1, dtype=torch.float32)
        each = -(probabilities * log_likelihoods).sum(-1)
        if ctx.needs_input_grad[0]:
            # The head's probabilities less those asked for; rounded ones have a sum of about 1.
            asked = probabilities.sum(-1, keepdim=True, dtype=torch.float32)
            lacking = torch.empty_like(logits)
            torch.addcmul(probabilities, log_likelihoods.exp_(), asked, value=-1, out=lacking)
            ctx.save_for_backward(lacking, counted)
        return (each * counted).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        lacking, counted = ctx.saved_tensors
        scale = (-gradients[0] * counted).unsqueeze(1)  # float32: a product of two dtypes is computed in the wider one
        return torch.mul(lacking, scale, out=torch.empty_like(lacking)), None, None


class LossSums:
    """Losses of batches, kept on the device until they are asked for."""

    def __init__(self, num_steps: int, device: torch.device) -> None:
        self._sums = torch.zeros(2, num_steps, dtype=torch.float64, device=device)  # losses, positions

    def add(self, losses: torch.Tensor, counts: torch.Tensor) -> None:
        """Add a batch: its losses and the positions that they are of, summed for each step, both [num_steps]."""
        self._sums += torch.stack([losses.detach(), counts])

    def mean(self) -> float:
        """Return the weighted sum over steps of the mean loss of a position; waits for the device."""
        losses, counts = self._sums.cpu()
        return float(weighted(losses / counts.clamp(min=1)))


def weighted(means: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``means`` [num_steps], each with its step's weight."""
    return (means * STEP_WEIGHT ** torch.arange(len(means), device=means.device)).sum()
