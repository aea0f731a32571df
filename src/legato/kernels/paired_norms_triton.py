# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.paired_norms`: one program per row and half, the half in registers."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.linear import Norm

_ELEMENTS_PER_WARP = 256  # 8 per thread: one load of 16 bytes in a 2-byte dtype
_MAX_WARPS = 16


@triton.jit
def _paired_norms_kernel(
    token_ids: tl.tensor,
    embedding: tl.tensor,
    token_weight: tl.tensor,
    hidden: tl.tensor,
    hidden_weight: tl.tensor,
    paired: tl.tensor,
    hidden_stride: tl.tensor,
    token_eps: tl.tensor,
    hidden_eps: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    half = tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    is_token = half == 0
    weight = tl.where(is_token, token_weight, hidden_weight)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_the_kernel_before(EARLY)
    token = tl.load(token_ids + row)
    source = tl.where(is_token, embedding + token * SIZE, hidden + row * hidden_stride)
    values = tl.load(source + columns, mask=inside, other=0.0)
    exact = values.to(tl.float32)
    eps = tl.where(is_token, token_eps, hidden_eps)
    factor = tl.rsqrt(tl.sum(exact * exact, axis=0) / SIZE + eps)
    rounded = (exact * factor).to(values.dtype).to(tl.float32)  # rounded before the weight, as a norm by itself does
    place = paired + row * (2 * SIZE) + half * SIZE
    tl.store(place + columns, (rounded * scale).to(values.dtype), mask=inside)


def paired_norms(
    token_ids: torch.Tensor, embedding: torch.Tensor, token_norm: Norm, hidden: torch.Tensor, hidden_norm: Norm
) -> torch.Tensor:
    """Return both halves, [num_tokens, 2 * size]."""
    num_rows, size = hidden.shape
    assert hidden.stride(1) == 1 and embedding.is_contiguous() and embedding.shape[1] == size
    assert embedding.dtype == hidden.dtype and token_norm.weight.dtype == hidden_norm.weight.dtype
    paired = hidden.new_empty(num_rows, 2 * size)
    block = triton.next_power_of_2(size)
    _paired_norms_kernel[(num_rows, 2)](
        token_ids,
        embedding,
        token_norm.weight,
        hidden,
        hidden_norm.weight,
        paired,
        hidden.stride(0),
        token_norm.eps,
        hidden_norm.eps,
        SIZE=size,
        BLOCK=block,
        **early_start(num_rows),
        num_warps=min(_MAX_WARPS, max(1, block // _ELEMENTS_PER_WARP)),
    )
    return paired
