"""Root mean square normalisation."""

import torch
from torch import nn

from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise ``hidden`` [..., size]; the mean is taken in float32."""
        return rms_norm(hidden, self.weight, self.eps)

    @property
    def terms(self) -> Norm:
        """What a product needs that normalises its inputs in passing."""
        return Norm(self.weight, self.eps)
