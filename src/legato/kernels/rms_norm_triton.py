# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.rms_norm`: one program per row, the row in registers."""

import torch
import triton
import triton.language as tl

_ELEMENTS_PER_WARP = 256  # 8 per thread: one load of 16 bytes in a 2-byte dtype
_MAX_WARPS = 16


@triton.jit
def _rms_norm_kernel(
    residual: tl.tensor,
    delta: tl.tensor,
    weight: tl.tensor,
    normed: tl.tensor,
    residual_stride: tl.tensor,
    delta_stride: tl.tensor,
    eps: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_DELTA: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    values = tl.load(residual + row * residual_stride + columns, mask=inside, other=0.0)
    if HAS_DELTA:
        added = tl.load(delta + row * delta_stride + columns, mask=inside, other=0.0)
        values = (values.to(tl.float32) + added.to(tl.float32)).to(values.dtype)
        tl.store(residual + row * residual_stride + columns, values, mask=inside)
    exact = values.to(tl.float32)
    factor = tl.rsqrt(tl.sum(exact * exact, axis=0) / SIZE + eps)
    rounded = (exact * factor).to(values.dtype).to(tl.float32)  # rounded before the weight, as transformers does
    tl.store(normed + row * SIZE + columns, (rounded * scale).to(values.dtype), mask=inside)


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the norm of ``hidden`` [..., size]."""
    rows = hidden.reshape(-1, hidden.shape[-1])  # [num_rows, size]
    return _launch(rows, None, weight, eps).view(hidden.shape)


def add_rms_norm(residual: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add ``delta`` to ``residual`` in place, both [num_tokens, size], and return the norm of the sum."""
    return _launch(residual, delta, weight, eps)


def _launch(residual: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    num_rows, size = residual.shape
    assert residual.stride(1) == 1 and (delta is None or delta.stride(1) == 1)
    normed = torch.empty((num_rows, size), dtype=residual.dtype, device=residual.device)
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(num_rows,)](
        residual,
        residual if delta is None else delta,
        weight,
        normed,
        residual.stride(0),
        residual.stride(0) if delta is None else delta.stride(0),
        eps,
        SIZE=size,
        BLOCK=block,
        HAS_DELTA=delta is not None,
        num_warps=min(_MAX_WARPS, max(1, block // _ELEMENTS_PER_WARP)),
    )
    return normed
