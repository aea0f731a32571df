# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.acceptance`: one program per request, which has few places."""

import triton
import triton.language as tl

from legato.kernels.acceptance import Accepted, Coins, Verified
from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.random_bits_triton import random_bits

_STRIDES = ("drafts_stride", "first_positions_stride", "tokens_stride", "num_tokens_stride", "seeds_stride")


@triton.jit(do_not_specialize=_STRIDES)
def _accept_kernel(
    sampled: tl.tensor,
    given: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    num_drafts: tl.tensor,
    first_positions: tl.tensor,
    first_places: tl.tensor,
    tokens: tl.tensor,
    num_tokens: tl.tensor,
    last_positions: tl.tensor,
    last_places: tl.tensor,
    seeds: tl.tensor,
    bounds: tl.tensor,
    drafts_stride: tl.tensor,
    first_positions_stride: tl.tensor,
    tokens_stride: tl.tensor,
    num_tokens_stride: tl.tensor,
    seeds_stride: tl.tensor,
    WIDTH: tl.constexpr,
    HAS_GIVEN: tl.constexpr,
    HAS_COINS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    request = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_draft = column < WIDTH - 1
    row = tl.load(rows + request)
    first_position = tl.load(first_positions + request * first_positions_stride)
    token = tl.load(sampled + request * WIDTH + column, mask=column < WIDTH, other=0)
    draft = tl.load(drafts + row * drafts_stride + column, mask=is_draft, other=0)
    if HAS_GIVEN:
        known = tl.load(given + request)
        token = tl.where((column == 0) & (known >= 0), known, token)
    if HAS_COINS:
        hashes = tl.zeros((BLOCK,), dtype=tl.int32)  # no token's: the position alone counts
        bits = random_bits(tl.load(seeds + row * seeds_stride), first_position + column, hashes)
        stands = bits < tl.load(bounds + column, mask=is_draft, other=0)
    else:
        stands = token == draft
    falls = is_draft & ~(stands & (column < tl.load(num_drafts + request)))
    num_accepted = tl.min(tl.where(falls, column, WIDTH - 1), axis=0)
    if HAS_COINS:
        token = tl.where(column < num_accepted, draft, token)
    tl.store(tokens + request * tokens_stride + column, token, mask=column < WIDTH)
    tl.store(num_tokens + request * num_tokens_stride, (num_accepted + 1).to(tl.int64))
    tl.store(last_positions + request, first_position + num_accepted)
    tl.store(last_places + request, tl.load(first_places + request).to(tl.int64) + num_accepted)


def accept(verified: Verified, accepted: Accepted, coins: Coins | None) -> None:
    """Judge the drafts of all requests in one launch."""
    sampled, given, rows, drafts, *_ = verified
    num_reqs, width = sampled.shape
    assert sampled.is_contiguous() and drafts.stride(1) == accepted.tokens.stride(1) == 1
    if num_reqs == 0:
        return
    seeds, bounds = (rows, rows) if coins is None else coins
    _accept_kernel[(num_reqs,)](
        sampled,
        rows if given is None else given,
        rows,
        drafts,
        verified.num_drafts,
        verified.first_positions,
        verified.first_places,
        *accepted,
        seeds,
        bounds,
        drafts.stride(0),
        verified.first_positions.stride(0),
        accepted.tokens.stride(0),
        accepted.num_tokens.stride(0),
        seeds.stride(0),
        WIDTH=width,
        HAS_GIVEN=given is not None,
        HAS_COINS=coins is not None,
        BLOCK=triton.next_power_of_2(width),
        **early_start(num_reqs),
        num_warps=1,
    )
