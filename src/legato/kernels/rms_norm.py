"""Root mean square normalisation (arXiv 1910.07467)."""

from functools import cache

import torch


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return ``hidden / sqrt(mean(hidden²) + eps) * weight`` over the last dimension, the mean taken in float32.

    ``hidden`` [..., size], ``weight`` [size]; the result is contiguous.
    """
    if hidden.is_cuda:
        from legato.kernels import rms_norm_triton

        return rms_norm_triton.rms_norm(hidden, weight, eps)
    return rms_norm_reference(hidden, weight, eps)


def rms_norm_reference(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Compute :func:`rms_norm` with torch alone.

    Four operations, where torch's own takes eight: sqrt(sum(x²) + size * eps) is the hypotenuse of the vector's norm
    and sqrt(size * eps).
    """
    size = hidden.shape[-1]
    norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
    root = torch.hypot(norm, _scalar((size * eps) ** 0.5, hidden.device))
    normed = torch.addcdiv(_scalar(0.0, hidden.device), hidden, root, value=size**0.5)
    return (normed if normed.dtype == hidden.dtype else normed.to(hidden.dtype)).mul_(weight)


@cache
def _scalar(value: float, device: torch.device) -> torch.Tensor:
    """Return a scalar tensor that outlives every graph that names it."""
    return torch.tensor(value, device=device)
