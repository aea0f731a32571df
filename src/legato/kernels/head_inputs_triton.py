# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.head_inputs`: three programs per row, each with its part in registers."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.head_inputs import Normed

_ELEMENTS_PER_WARP = 256  # 8 per thread: one load of 16 bytes in a 2-byte dtype
_MAX_WARPS = 16


@triton.jit
def _head_inputs_kernel(
    token_ids: tl.tensor,
    embedding: tl.tensor,
    token_weight: tl.tensor,
    hidden: tl.tensor,
    hidden_weight: tl.tensor,
    positions: tl.tensor,
    angles: tl.tensor,
    paired: tl.tensor,
    row_angles: tl.tensor,
    hidden_stride: tl.tensor,
    token_eps: tl.tensor,
    hidden_eps: tl.tensor,
    SIZE: tl.constexpr,
    ANGLES: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    is_token = part == 0
    weight = tl.where(is_token, token_weight, hidden_weight)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    wait_for_the_kernel_before(EARLY)
    if part < 2:
        token = tl.load(token_ids + row)
        source = tl.where(is_token, embedding + token * SIZE, hidden + row * hidden_stride)
        values = tl.load(source + columns, mask=inside, other=0.0)
        exact = values.to(tl.float32)
        eps = tl.where(is_token, token_eps, hidden_eps)
        factor = tl.rsqrt(tl.sum(exact * exact, axis=0) / SIZE + eps)
        rounded = (exact * factor).to(values.dtype).to(tl.float32)  # before the weight, as a norm by itself does
        place = paired + row * (2 * SIZE) + part * SIZE
        tl.store(place + columns, (rounded * scale).to(values.dtype), mask=inside)
    else:
        theirs = angles + tl.load(positions + row) * ANGLES
        found = tl.load(theirs + columns, mask=columns < ANGLES, other=0.0)
        tl.store(row_angles + row * ANGLES + columns, found, mask=columns < ANGLES)


def head_inputs(
    token_ids: torch.Tensor, embedding: Normed, hidden: Normed, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both halves side by side, [num_tokens, 2 * size], and the rows of ``angles``."""
    (table, token_norm), (states, state_norm) = embedding, hidden
    num_rows, size = states.shape
    assert states.stride(1) == 1 and table.is_contiguous() and table.shape[1] == size and angles.is_contiguous()
    assert table.dtype == states.dtype and token_norm.weight.dtype == state_norm.weight.dtype
    paired, row_angles = states.new_empty(num_rows, 2 * size), angles.new_empty(num_rows, *angles.shape[1:])
    num_angles = angles[0].numel()
    block = triton.next_power_of_2(max(size, num_angles))
    _head_inputs_kernel[(num_rows, 3)](
        token_ids,
        table,
        token_norm.weight,
        states,
        state_norm.weight,
        positions,
        angles,
        paired,
        row_angles,
        states.stride(0),
        token_norm.eps,
        state_norm.eps,
        SIZE=size,
        ANGLES=num_angles,
        BLOCK=block,
        **early_start(num_rows, size),
        num_warps=min(_MAX_WARPS, max(1, block // _ELEMENTS_PER_WARP)),
    )
    return paired, row_angles
