"""The gate of a gated feed-forward layer: ``silu(gate) * up`` (arXiv 2002.05202)."""

import torch
from torch.nn import functional


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Map ``gate_up`` [num_tokens, 2 * size], gates before ups, to ``silu(gate) * up`` [num_tokens, size]."""
    if gate_up.is_cuda:
        from legato.kernels import silu_mul_triton

        return silu_mul_triton.silu_mul(gate_up)
    return silu_mul_reference(gate_up)


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """Compute :func:`silu_mul` with torch alone."""
    gate, up = gate_up.split_with_sizes([gate_up.shape[-1] // 2] * 2, dim=-1)  # [num_tokens, size] each
    return functional.silu(gate).mul_(up)
