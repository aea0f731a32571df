"""Root mean square normalisation."""

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)
        self.shape = (size,)
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise ``hidden`` [..., size]; the mean is taken in float32."""
        return functional.rms_norm(hidden, self.shape, self.weight, self.eps)
