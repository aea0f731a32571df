"""Root mean square normalisation."""

import torch
from torch import nn

from legato.kernels.rms_norm import add_rms_norm, rms_norm


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise ``hidden`` [..., size]; the mean is taken in float32."""
        return rms_norm(hidden, self.weight, self.eps)

    def add(self, residual: torch.Tensor, delta: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Add ``delta`` to ``residual`` [num_tokens, size] in place; return the sum and its norm.

        ``delta`` None adds nothing: so the first layer finds the embeddings.
        """
        if delta is None:
            return residual, self(residual)
        return add_rms_norm(residual, delta, self.weight, self.eps)
