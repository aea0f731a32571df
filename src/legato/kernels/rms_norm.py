"""Root mean square normalisation (arXiv 1910.07467), alone and behind a residual sum."""

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


def add_rms_norm(
    residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add ``delta`` to ``residual`` in place, both [num_tokens, size]; return the sum and its norm.

    The sum is rounded to its dtype before it is normalised, so that both results are of the same numbers.
    """
    if residual.is_cuda:
        from legato.kernels import rms_norm_triton

        return residual, rms_norm_triton.add_rms_norm(residual, delta, weight, eps)
    return add_rms_norm_reference(residual, delta, weight, eps)


def rms_norm_reference(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Compute :func:`rms_norm` with torch alone.

    Five operations, where torch's own takes eight: sqrt(mean(x²) + eps) is the hypotenuse of the root mean square and
    sqrt(eps).
    """
    norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
    root = torch.hypot(norm.mul_(hidden.shape[-1] ** -0.5), _square_root(eps, hidden.device))
    normed = torch.div(hidden, root)
    return (normed if normed.dtype == hidden.dtype else normed.to(hidden.dtype)).mul_(weight)


@cache
def _square_root(eps: float, device: torch.device) -> torch.Tensor:
    """Return a scalar that outlives every graph that names it."""
    return torch.tensor(eps**0.5, device=device)


def add_rms_norm_reference(
    residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute :func:`add_rms_norm` with torch alone."""
    residual.add_(delta)
    return residual, rms_norm_reference(residual, weight, eps)
