# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""The loop over keys of a decode in which each warp has keys of its own, and sums of its own until the end.

Where warps share a tile, they wait for each other four times in each: for the largest score and for the sum of weights.
Here they wait for the tile's copy alone, and join once, as the shares of a split decode do (arXiv 2311.01282).
"""

import triton
import triton.language as tl


@triton.jit
def _load_keys(
    cache: tl.tensor, offset: tl.tensor, known: tl.tensor, HEAD_DIM: tl.constexpr, HEAD_PADDED: tl.constexpr
) -> tl.tensor:
    """Return [warps, keys, head] of a cache. What is not ``known`` is not read: it may hold anything."""
    column = tl.arange(0, HEAD_PADDED)
    inside = known[:, :, None] & (column < HEAD_DIM)[None, None, :]
    return tl.load(cache + offset[:, :, None] + column[None, None, :], mask=inside, other=0.0)


@triton.jit
def _sum_over_warps(values: tl.tensor, WARPS: tl.constexpr) -> tl.tensor:
    """Return the sum of ``values`` [warps, rows, head] over the warps, pair by pair: one exchange, and no shuffles."""
    left = tl.permute(values, (1, 2, 0))
    if WARPS >= 8:
        one, other = tl.split(tl.reshape(left, [values.shape[1], values.shape[2], WARPS // 2, 2]))
        left = one + other
    if WARPS >= 4:
        one, other = tl.split(tl.reshape(left, [values.shape[1], values.shape[2], 2, 2]))
        left = one + other
    one, other = tl.split(left)
    return one + other


@triton.jit
def attend_keys_by_warp(
    query: tl.tensor,
    position: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    blocks: tl.tensor,
    first_block: tl.tensor,
    kv_head: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    scale: tl.tensor,
    WARPS: tl.constexpr,
    WINDOW: tl.constexpr,
    TOKEN_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """Attend ``query`` [rows, head], at ``position`` [rows], to the keys from ``begin`` up to ``end``.

    Returns (accumulated values, sum of weights, largest score) of each row. ``first_block`` [BLOCK_N] are the first
    keys' blocks. A tile's keys lie in order over the warps; a warp takes 16 of them at least.
    """
    KEYS: tl.constexpr = BLOCK_N // WARPS
    rows = tl.broadcast_to(query[None, :, :], [WARPS, BLOCK_M, HEAD_PADDED])
    accumulated = tl.zeros([WARPS, BLOCK_M, HEAD_PADDED], tl.float32)
    total = tl.zeros([WARPS, BLOCK_M], tl.float32)
    peak = tl.full([WARPS, BLOCK_M], float("-inf"), tl.float32)
    within = tl.arange(0, WARPS)[:, None] * KEYS + tl.arange(0, KEYS)[None, :]
    block = tl.reshape(first_block, [WARPS, KEYS])
    for start in range(begin, end, BLOCK_N):
        place = start + within
        known = place < end
        offset = (block.to(tl.int64) * BLOCK_SIZE + place % BLOCK_SIZE) * TOKEN_STRIDE + kv_head * HEAD_DIM
        # The next tile's blocks are read a tile ahead: the pipeline's stages are then for keys and values alone.
        following = place + BLOCK_N
        block = tl.load(blocks + following // BLOCK_SIZE, mask=following < end, other=0)
        keys = _load_keys(key_cache, offset, known, HEAD_DIM, HEAD_PADDED)
        values = _load_keys(value_cache, offset, known, HEAD_DIM, HEAD_PADDED)
        scores = tl.dot(rows, tl.permute(keys, (0, 2, 1)), input_precision=PRECISION) * scale
        visible = known[:, None, :] & (place[:, None, :] <= position[None, :, None])
        if WINDOW > 0:
            visible = visible & (place[:, None, :] > position[None, :, None] - WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 2))
        # A row that has seen no key yet has a peak of -inf, whose difference to itself would not be a number.
        shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp2(scores - shift[:, :, None])
        rescale = tl.exp2(peak - shift)
        total = total * rescale + tl.sum(weights, 2)
        accumulated = accumulated * rescale[:, :, None]
        accumulated = tl.dot(weights.to(values.dtype), values, accumulated, input_precision=PRECISION)
        peak = new_peak
    highest = tl.max(peak, 0)
    share = tl.exp2(peak - tl.where(highest == float("-inf"), 0.0, highest)[None, :])
    return _sum_over_warps(accumulated * share[:, :, None], WARPS), tl.sum(total * share, 0), highest
