# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Paged attention where every request has the same few query tokens: the keys are split over programs.

Flash-decoding (arXiv 2311.01282): each program attends all rows of one (request, key head) pair to its share of the
keys; where there is more than one share, the last program to finish joins them by their log-sum-exp, in their order.
The greatest number of shares is a host integer; how many are made follows from the real length, read on the device.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.paged_attention_configs import (
    MAX_SPLITS,
    MIN_SHARE,
    TileConfig,
    decode_config,
    padded_head,
    padded_power_of_2,
)
from legato.kernels.paged_attention_launch_triton import fitting, launch_constants
from legato.kernels.paged_attention_loop_triton import (
    LOG2_E,
    attend_keys,
    blocks_of_keys,
    empty_state,
    load_rows,
    store_rows,
)
from legato.kernels.paged_attention_warps_triton import attend_keys_by_warp
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kernels.split_arrival_triton import arrive

_JOINED_ELEMENTS = 8192
"""Of shares that are read at once, what a program's registers hold."""


@triton.jit
def _join(
    partial: tl.tensor,
    log_sums: tl.tensor,
    out: tl.tensor,
    request: tl.tensor,
    kv_head: tl.tensor,
    num_shares: tl.tensor,
    num_splits: tl.tensor,
    out_stride: tl.tensor,
    QUERY_LEN: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    AT_ONCE: tl.constexpr,
) -> None:
    """Write a pair's rows, each joined of its shares by the sums of their softmax.

    Reads past the first cache, whose lines may be older than what other programs have stored.
    """
    row = tl.arange(0, ROWS)
    live = row < QUERY_LEN * GROUP
    head = kv_head * GROUP + row % GROUP
    token = (request * QUERY_LEN + row // GROUP).to(tl.int64)
    first = (token * (KV_HEADS * GROUP) + head) * num_splits
    column = tl.arange(0, HEAD_PADDED)
    joined = tl.zeros([ROWS, HEAD_PADDED], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    for begin in range(0, num_shares, AT_ONCE):
        share = begin + tl.arange(0, AT_ONCE)
        made = live[:, None] & (share < num_shares)[None, :]
        at = first[:, None] + share[None, :]
        inside = made[:, :, None] & (column < HEAD_DIM)[None, None, :]
        values_at = partial + at[:, :, None] * HEAD_DIM + column[None, None, :]
        values = tl.load(values_at, mask=inside, other=0.0, cache_modifier=".cg")
        log_sum = tl.load(log_sums + at, mask=made, other=float("-inf"), cache_modifier=".cg")
        new_peak = tl.maximum(peak, tl.max(log_sum, 1))
        shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = tl.exp2(log_sum - shift[:, None])
        used = log_sum > float("-inf")  # a share without a visible key left nothing there
        rescale = tl.exp2(peak - shift)
        total = total * rescale + tl.sum(weight, 1)
        shares = tl.where(used[:, :, None], weight[:, :, None] * values, 0.0)
        joined = joined * rescale[:, None] + tl.sum(shares, 1)
        peak = new_peak
    joined = joined / tl.where(total == 0.0, 1.0, total)[:, None]
    store_rows(out, token * out_stride + head * HEAD_DIM, live, joined, HEAD_DIM, HEAD_PADDED)


@triton.jit(do_not_specialize=["table_stride", "table_width"])
def _decode_kernel(
    query: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    log_sums: tl.tensor,
    counters: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    seq_lens: tl.tensor,
    block_table: tl.tensor,
    query_stride: tl.tensor,
    out_stride: tl.tensor,
    table_stride: tl.tensor,
    table_width: tl.tensor,
    scale: tl.tensor,
    SPLIT: tl.constexpr,
    MIN_SHARE: tl.constexpr,
    JOINED_ROWS: tl.constexpr,
    SHARES_AT_ONCE: tl.constexpr,
    QUERY_LEN: tl.constexpr,
    WINDOW: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AT_ONCE: tl.constexpr,
    WARPS_APART: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Attend one request's rows of one key head to one share of its keys."""
    wait_for_the_kernel_before(EARLY)
    kv_head, split, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_splits = tl.num_programs(1)
    row = tl.arange(0, BLOCK_M)
    live = row < QUERY_LEN * GROUP
    head = kv_head * GROUP + row % GROUP
    token = (request * QUERY_LEN + row // GROUP).to(tl.int64)
    blocks = block_table + request.to(tl.int64) * table_stride
    seq_len = tl.load(seq_lens + request)
    if AT_ONCE:
        # What the first keys wait for is asked for together: a table's row is read past the end of its sequence.
        rows = load_rows(query, token * query_stride + head * HEAD_DIM, live, HEAD_DIM, HEAD_PADDED)
        block = blocks_of_keys(blocks, 0, table_width * BLOCK_SIZE, BLOCK_SIZE, BLOCK_N)
    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(seq_len - QUERY_LEN + 1 - WINDOW, 0) // BLOCK_N * BLOCK_N
    share = tl.cdiv(tl.cdiv(seq_len - lowest, BLOCK_N), num_splits) * BLOCK_N
    if SPLIT:
        share = tl.maximum(share, MIN_SHARE)
    begin = lowest + split * share
    if begin < seq_len or split == 0:  # without a key, the first writes zeros
        end = tl.minimum(begin + share, seq_len)
        position = seq_len - QUERY_LEN + row // GROUP
        if not AT_ONCE:
            rows = load_rows(query, token * query_stride + head * HEAD_DIM, live, HEAD_DIM, HEAD_PADDED)
            block = blocks_of_keys(blocks, begin, end, BLOCK_SIZE, BLOCK_N)
        elif SPLIT or WINDOW > 0:  # noqa: SIM102 (decided when it is compiled, the next one when it runs)
            if begin > 0:
                block = blocks_of_keys(blocks, begin, end, BLOCK_SIZE, BLOCK_N)
        # fmt: off
        if WARPS_APART > 1:
            accumulated, total, peak = attend_keys_by_warp(
                rows, position, key_cache, value_cache, blocks, block, kv_head, begin, end, scale, WARPS_APART, WINDOW,
                KV_HEADS * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, HEAD_PADDED, BLOCK_M, BLOCK_N, PRECISION)
        else:
            accumulated, total, peak = attend_keys(
                rows, position, empty_state(BLOCK_M, HEAD_PADDED), key_cache, value_cache, blocks, block, kv_head,
                begin, end, scale, True, WINDOW, KV_HEADS * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, HEAD_PADDED, BLOCK_N,
                PRECISION)
        # fmt: on
        accumulated = accumulated / tl.where(total == 0.0, 1.0, total)[:, None]
        at = token * out_stride + head * HEAD_DIM
        if SPLIT:
            num_shares = tl.cdiv(seq_len - lowest, share)
            if num_shares <= 1:
                store_rows(out, at, live, accumulated, HEAD_DIM, HEAD_PADDED)
            else:
                first = (token * (KV_HEADS * GROUP) + head) * num_splits
                tl.store(log_sums + first + split, peak + tl.log2(total), mask=live)
                store_rows(
                    partial, (first + split) * HEAD_DIM, live & (total > 0.0), accumulated, HEAD_DIM, HEAD_PADDED
                )
                if arrive(counters + request * KV_HEADS + kv_head, num_shares):
                    # fmt: off
                    _join(partial, log_sums, out, request, kv_head, num_shares, num_splits, out_stride,
                          QUERY_LEN, KV_HEADS, GROUP, HEAD_DIM, HEAD_PADDED, JOINED_ROWS, SHARES_AT_ONCE)
                    # fmt: on
        else:
            store_rows(out, at, live, accumulated, HEAD_DIM, HEAD_PADDED)


def paged_attention_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    *,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    query_len: int,
    scale: float,
    window: int | None,
    num_splits: int,
    workspace: SplitWorkspace,
    config: TileConfig | None = None,
) -> None:
    """Write ``out`` [num_reqs * query_len, num_heads, head_dim] of a batch in which all have ``query_len`` tokens.

    ``query`` as ``out``, caches [num_blocks, block_size, num_kv_heads, head_dim] contiguous, ``seq_lens`` [num_reqs]
    int32, ``block_table`` [num_reqs, max_blocks] int32.
    """
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = key_cache.shape[2]
    group, num_reqs = num_heads // num_kv_heads, seq_lens.shape[0]
    rows = query_len * group
    config = config or decode_config(rows=rows, head_dim=head_dim, element_bytes=query.element_size())
    config = fitting(config, query)
    assert num_splits <= MAX_SPLITS
    assert num_splits == 1 or num_reqs * query_len * num_heads * num_splits <= workspace.rows
    joined_rows = padded_power_of_2(rows)
    _decode_kernel[(num_kv_heads, num_splits, num_reqs)](
        query,
        out,
        workspace.partial,
        workspace.log_sums,
        workspace.counters,
        key_cache,
        value_cache,
        seq_lens,
        block_table,
        query.stride(0),
        out.stride(0),
        block_table.stride(0),
        block_table.shape[1],
        scale * LOG2_E,
        SPLIT=num_splits > 1,
        MIN_SHARE=-(-MIN_SHARE // config.block_n) * config.block_n,
        JOINED_ROWS=joined_rows,
        SHARES_AT_ONCE=max(1, min(MAX_SPLITS, _JOINED_ELEMENTS // (joined_rows * padded_head(head_dim)))),
        QUERY_LEN=query_len,
        AT_ONCE=config.at_once,
        WARPS_APART=config.num_warps if config.warps_apart else 1,
        **early_start(num_reqs * query_len, num_heads * head_dim),
        **launch_constants(query, key_cache, config, window),
    )
