# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.silu_mul`."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before

_BLOCK = 1024
_NUM_WARPS = 4


@triton.jit
def silu_times(gate: tl.tensor, up: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """Return ``silu(gate) * up`` in ``dtype`` of float32 values, rounded after each of the two steps."""
    rounded = (gate * tl.sigmoid(gate)).to(dtype).to(tl.float32)
    return (rounded * up).to(dtype)


@triton.jit
def _silu_mul_kernel(
    gate_up: tl.tensor,
    out: tl.tensor,
    row_stride: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < SIZE
    gate = tl.load(gate_up + row * row_stride + columns, mask=inside, other=0.0)
    up = tl.load(gate_up + row * row_stride + SIZE + columns, mask=inside, other=0.0)
    product = silu_times(gate.to(tl.float32), up.to(tl.float32), gate.dtype)
    tl.store(out + row * SIZE + columns, product, mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Map ``gate_up`` [num_tokens, 2 * size] to [num_tokens, size]."""
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    assert gate_up.stride(1) == 1
    out = torch.empty((num_tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    grid = (num_tokens, triton.cdiv(size, _BLOCK))
    _silu_mul_kernel[grid](
        gate_up,
        out,
        gate_up.stride(0),
        SIZE=size,
        BLOCK=_BLOCK,
        **early_start(num_tokens, size),
        num_warps=_NUM_WARPS,
    )
    return out
