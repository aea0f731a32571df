# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.token_lookups`: two programs per token, each with its row in registers."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before

_ELEMENTS_PER_WARP = 256  # 8 per thread: one load of 16 bytes in a 2-byte dtype
_MAX_WARPS = 16


@triton.jit
def _token_lookups_kernel(
    token_ids: tl.tensor,
    embedding: tl.tensor,
    positions: tl.tensor,
    angles: tl.tensor,
    embedded: tl.tensor,
    token_angles: tl.tensor,
    SIZE: tl.constexpr,
    ANGLES: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_ANGLES: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    token = tl.program_id(0).to(tl.int64)
    if tl.program_id(1) == 0:
        column = tl.arange(0, BLOCK)
        found = tl.load(embedding + tl.load(token_ids + token) * SIZE + column, mask=column < SIZE)
        tl.store(embedded + token * SIZE + column, found, mask=column < SIZE)
    else:
        angle = tl.arange(0, BLOCK_ANGLES)
        turned = tl.load(angles + tl.load(positions + token) * ANGLES + angle, mask=angle < ANGLES)
        tl.store(token_angles + token * ANGLES + angle, turned, mask=angle < ANGLES)


def token_lookups(
    token_ids: torch.Tensor, embedding: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens' rows of both tables."""
    num_tokens, size, num_angles = token_ids.shape[0], embedding.shape[1], angles.shape[1] * angles.shape[2]
    assert embedding.is_contiguous() and angles.is_contiguous()
    embedded = embedding.new_empty(num_tokens, size)
    token_angles = angles.new_empty(num_tokens, *angles.shape[1:])
    if num_tokens == 0:
        return embedded, token_angles
    block = triton.next_power_of_2(size)
    _token_lookups_kernel[(num_tokens, 2)](
        token_ids,
        embedding,
        positions,
        angles,
        embedded,
        token_angles,
        SIZE=size,
        ANGLES=num_angles,
        BLOCK=block,
        BLOCK_ANGLES=triton.next_power_of_2(num_angles),
        **early_start(num_tokens, size),
        num_warps=min(_MAX_WARPS, max(1, block // _ELEMENTS_PER_WARP)),
    )
    return embedded, token_angles
