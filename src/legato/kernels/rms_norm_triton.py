# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.rms_norm`: one program per row, the row in registers."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before

_ELEMENTS_PER_WARP = 256  # 8 per thread: one load of 16 bytes in a 2-byte dtype
_MAX_WARPS = 16


@triton.jit
def _rms_norm_kernel(
    hidden: tl.tensor,
    weight: tl.tensor,
    normed: tl.tensor,
    hidden_stride: tl.tensor,
    eps: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_the_kernel_before(EARLY)
    values = tl.load(hidden + row * hidden_stride + columns, mask=inside, other=0.0)
    exact = values.to(tl.float32)
    factor = tl.rsqrt(tl.sum(exact * exact, axis=0) / SIZE + eps)
    rounded = (exact * factor).to(values.dtype).to(tl.float32)  # rounded before the weight, as transformers does
    tl.store(normed + row * SIZE + columns, (rounded * scale).to(values.dtype), mask=inside)


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the norm of ``hidden`` [..., size]."""
    rows = hidden.reshape(-1, hidden.shape[-1])  # [num_rows, size]
    num_rows, size = rows.shape
    assert rows.stride(1) == 1
    normed = torch.empty((num_rows, size), dtype=hidden.dtype, device=hidden.device)
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(num_rows,)](
        rows,
        weight,
        normed,
        rows.stride(0),
        eps,
        SIZE=size,
        BLOCK=block,
        **early_start(num_rows, size),
        num_warps=min(_MAX_WARPS, max(1, block // _ELEMENTS_PER_WARP)),
    )
    return normed.view(hidden.shape)
