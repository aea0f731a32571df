# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Paged attention over any mix of query lengths: prefill, chunks and decodes in one launch.

A program owns one tile of query tokens with all heads of one key head, and finds its request from the token counts in
device memory. The grid follows from the padded numbers of tokens and requests alone, so that a graph serves any mix.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.paged_attention_configs import TileConfig, varlen_config
from legato.kernels.paged_attention_launch_triton import fitting, launch_constants
from legato.kernels.paged_attention_loop_triton import (
    LOG2_E,
    attend_keys,
    blocks_of_keys,
    empty_state,
    load_rows,
    store_rows,
)


@triton.jit
def _request_of_tile(
    query_start_loc: tl.tensor, num_reqs: tl.tensor, tile: tl.tensor, TOKENS: tl.constexpr, CHUNK: tl.constexpr
) -> tl.tensor:
    """Return the request that ``tile`` belongs to.

    Request i begins with tile ``query_start_loc[i] // TOKENS + i``: one more for each earlier request than its tokens
    may need, which costs idle tiles but no pass over all lengths.
    """
    earlier = 0
    for first in range(0, num_reqs, CHUNK):
        index = first + tl.arange(0, CHUNK)
        start = tl.load(query_start_loc + index, mask=index < num_reqs, other=0)
        begun = (index < num_reqs) & (start // TOKENS + index <= tile)
        earlier += tl.sum(begun.to(tl.int32), 0)
    return earlier - 1


@triton.jit(do_not_specialize=["num_reqs", "table_stride"])
def _varlen_kernel(
    query: tl.tensor,
    out: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    query_start_loc: tl.tensor,
    seq_lens: tl.tensor,
    block_table: tl.tensor,
    num_reqs: tl.tensor,
    query_stride: tl.tensor,
    out_stride: tl.tensor,
    table_stride: tl.tensor,
    scale: tl.tensor,
    WINDOW: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """Attend ``BLOCK_M // GROUP`` tokens of one request, for all heads of one key head."""
    TOKENS: tl.constexpr = BLOCK_M // GROUP
    kv_head = tl.program_id(0)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # the last tiles of a prefill see most keys: they go first
    request = _request_of_tile(query_start_loc, num_reqs, tile, TOKENS, 256)
    start = tl.load(query_start_loc + request)
    query_len = tl.load(query_start_loc + request + 1) - start
    first = (tile - start // TOKENS - request) * TOKENS
    if first < query_len:
        seq_len = tl.load(seq_lens + request)
        row = tl.arange(0, BLOCK_M)
        token = first + row // GROUP
        live = (row < TOKENS * GROUP) & (token < query_len)
        position = seq_len - query_len + token
        head = kv_head * GROUP + row % GROUP
        at = (start + token).to(tl.int64)
        rows = load_rows(query, at * query_stride + head * HEAD_DIM, live, HEAD_DIM, HEAD_PADDED)

        seen_by_all = seq_len - query_len + first + 1
        end = seq_len - query_len + tl.minimum(first + TOKENS, query_len)
        begin = 0
        whole = seen_by_all // BLOCK_N * BLOCK_N
        if WINDOW > 0:
            begin = tl.maximum(seen_by_all - WINDOW, 0) // BLOCK_N * BLOCK_N
            whole = begin
        blocks = block_table + request.to(tl.int64) * table_stride
        state = empty_state(BLOCK_M, HEAD_PADDED)
        # fmt: off
        block = blocks_of_keys(blocks, begin, whole, BLOCK_SIZE, BLOCK_N)
        state = attend_keys(
            rows, position, state, key_cache, value_cache, blocks, block, kv_head, begin, whole, scale, False, WINDOW,
            KV_HEADS * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, HEAD_PADDED, BLOCK_N, PRECISION)
        block = blocks_of_keys(blocks, whole, end, BLOCK_SIZE, BLOCK_N)
        accumulated, total, _ = attend_keys(
            rows, position, state, key_cache, value_cache, blocks, block, kv_head, whole, end, scale, True, WINDOW,
            KV_HEADS * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, HEAD_PADDED, BLOCK_N, PRECISION)
        # fmt: on
        accumulated = accumulated / total[:, None]
        store_rows(out, at * out_stride + head * HEAD_DIM, live, accumulated, HEAD_DIM, HEAD_PADDED)


def paged_attention_varlen(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    *,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    max_query_len: int,
    scale: float,
    window: int | None,
    config: TileConfig | None = None,
) -> None:
    """Write ``out`` [num_tokens, num_heads, head_dim]; tokens that belong to no request are left as they are.

    ``query`` [num_tokens, num_heads, head_dim], caches [num_blocks, block_size, num_kv_heads, head_dim] contiguous,
    ``query_start_loc`` [num_reqs + 1] int32, ``seq_lens`` [num_reqs] int32, ``block_table`` [num_reqs, max_blocks]
    int32. ``max_query_len`` chooses the tile and bounds nothing.
    """
    num_tokens, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[2]
    group, num_reqs = num_heads // num_kv_heads, seq_lens.shape[0]
    config = config or varlen_config(
        max_query_len=max_query_len, group=group, head_dim=head_dim, element_bytes=query.element_size()
    )
    config = fitting(config, query)
    tiles = num_tokens // (config.block_m // group) + num_reqs
    _varlen_kernel[(num_kv_heads, tiles)](
        query,
        out,
        key_cache,
        value_cache,
        query_start_loc,
        seq_lens,
        block_table,
        num_reqs,
        query.stride(0),
        out.stride(0),
        block_table.stride(0),
        scale * LOG2_E,
        **launch_constants(query, key_cache, config, window),
    )
