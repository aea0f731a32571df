# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""The loop over keys that all paged attention kernels share: online softmax (arXiv 2205.14135, 2307.08691).

A tile of rows (query tokens × the query heads of one key head) walks over tiles of keys. A tile of keys may span
several cache blocks: each key finds its block by itself. Scores are kept in base 2: ``scale`` includes log2(e).
"""

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def load_rows(
    query: tl.tensor, offset: tl.tensor, live: tl.tensor, HEAD_DIM: tl.constexpr, HEAD_PADDED: tl.constexpr
) -> tl.tensor:
    """Return the query rows that start at ``offset`` [rows], zeros where not ``live`` and beyond ``HEAD_DIM``."""
    column = tl.arange(0, HEAD_PADDED)
    inside = live[:, None] & (column < HEAD_DIM)[None, :]
    return tl.load(query + offset[:, None] + column[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(
    out: tl.tensor,
    offset: tl.tensor,
    live: tl.tensor,
    rows: tl.tensor,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
) -> None:
    """Write the ``live`` rows at ``offset`` [rows]."""
    column = tl.arange(0, HEAD_PADDED)
    inside = live[:, None] & (column < HEAD_DIM)[None, :]
    tl.store(out + offset[:, None] + column[None, :], rows.to(out.dtype.element_ty), mask=inside)


@triton.jit
def blocks_of_keys(
    blocks: tl.tensor, begin: tl.tensor, end: tl.tensor, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr
) -> tl.tensor:
    """Return the cache blocks of ``BLOCK_N`` keys from ``begin`` on, no one's where that is past ``end``."""
    place = begin + tl.arange(0, BLOCK_N)
    return tl.load(blocks + place // BLOCK_SIZE, mask=place < end, other=0)


@triton.jit
def _load_tile(
    cache: tl.tensor,
    offset: tl.tensor,
    known: tl.tensor,
    MASKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
) -> tl.tensor:
    """Return [keys, head] of a cache. What is not ``known`` is not read: it may hold anything."""
    column = tl.arange(0, HEAD_PADDED)
    place = cache + offset[:, None] + column[None, :]
    if MASKED or HEAD_DIM != HEAD_PADDED:
        tile = tl.load(place, mask=known[:, None] & (column < HEAD_DIM)[None, :], other=0.0)
    else:
        tile = tl.load(place)
    return tile


@triton.jit
def attend_keys(
    query: tl.tensor,
    position: tl.tensor,
    state: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    blocks: tl.tensor,
    first_block: tl.tensor,
    kv_head: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    scale: tl.tensor,
    MASKED: tl.constexpr,
    WINDOW: tl.constexpr,
    TOKEN_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """Attend ``query`` [rows, head], at ``position`` [rows], to the keys from ``begin`` up to ``end``.

    ``state`` is (accumulated values, sum of weights, largest score); returns it after these keys. ``first_block``
    [BLOCK_N] are the first keys' blocks. Without ``MASKED``, every row sees every key and the number of keys is a
    multiple of ``BLOCK_N``.
    """
    accumulated, total, peak = state
    block = first_block
    for start in range(begin, end, BLOCK_N):
        place = start + tl.arange(0, BLOCK_N)
        known = place < end
        offset = (block.to(tl.int64) * BLOCK_SIZE + place % BLOCK_SIZE) * TOKEN_STRIDE + kv_head * HEAD_DIM
        # The next tile's blocks are read a tile ahead: the pipeline's stages are then for keys and values alone.
        block = blocks_of_keys(blocks, start + BLOCK_N, end, BLOCK_SIZE, BLOCK_N)
        keys = _load_tile(key_cache, offset, known, MASKED, HEAD_DIM, HEAD_PADDED)
        values = _load_tile(value_cache, offset, known, MASKED, HEAD_DIM, HEAD_PADDED)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        if MASKED:
            visible = known[None, :] & (place[None, :] <= position[:, None])
            if WINDOW > 0:
                visible = visible & (place[None, :] > position[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        # A row that has seen no key yet has a peak of -inf, whose difference to itself would not be a number.
        shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp2(scores - shift[:, None])
        rescale = tl.exp2(peak - shift)
        total = total * rescale + tl.sum(weights, 1)
        accumulated = accumulated * rescale[:, None]
        accumulated = tl.dot(weights.to(values.dtype), values, accumulated, input_precision=PRECISION)
        peak = new_peak
    return accumulated, total, peak


@triton.jit
def empty_state(ROWS: tl.constexpr, HEAD_PADDED: tl.constexpr) -> tl.tensor:
    """Return (accumulated values, sum of weights, largest score) before any key."""
    accumulated = tl.zeros([ROWS, HEAD_PADDED], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    return accumulated, total, peak


def dot_precision(dtype: torch.dtype) -> str:
    """Return the ``input_precision`` of a product: float32 stays float32; narrower types have one way only."""
    return "ieee" if dtype == torch.float32 else "tf32"
