# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Paged attention where every request has the same few query tokens: the keys are split over programs.

Flash-decoding (arXiv 2311.01282): each program attends all rows of one (request, key head) pair to its share
of the keys; where there is more than one share, a second kernel joins them by their log-sum-exp. The number of shares
is a host integer; how many keys a share has follows from the real length, read on the device.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.paged_attention_configs import TileConfig, decode_config, padded_head, padded_power_of_2
from legato.kernels.paged_attention_loop_triton import (
    LOG2_E,
    attend_keys,
    dot_precision,
    empty_state,
    load_rows,
    store_rows,
)
from legato.kernels.paged_attention_workspace import SplitWorkspace


@triton.jit(do_not_specialize=["table_stride"])
def _split_kernel(
    query: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    log_sums: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    seq_lens: tl.tensor,
    block_table: tl.tensor,
    query_stride: tl.tensor,
    out_stride: tl.tensor,
    table_stride: tl.tensor,
    scale: tl.tensor,
    SPLIT: tl.constexpr,
    QUERY_LEN: tl.constexpr,
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
    """Attend one request's rows of one key head to one share of its keys."""
    kv_head, split, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_splits = tl.num_programs(1)
    seq_len = tl.load(seq_lens + request)
    row = tl.arange(0, BLOCK_M)
    live = row < QUERY_LEN * GROUP
    head = kv_head * GROUP + row % GROUP
    token = (request * QUERY_LEN + row // GROUP).to(tl.int64)
    position = seq_len - QUERY_LEN + row // GROUP
    rows = load_rows(query, token * query_stride + head * HEAD_DIM, live, HEAD_DIM, HEAD_PADDED)

    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(seq_len - QUERY_LEN + 1 - WINDOW, 0) // BLOCK_N * BLOCK_N
    share = tl.cdiv(tl.cdiv(seq_len - lowest, BLOCK_N), num_splits) * BLOCK_N
    begin = lowest + split * share
    end = tl.minimum(begin + share, seq_len)
    blocks = block_table + request.to(tl.int64) * table_stride
    # fmt: off
    accumulated, total, peak = attend_keys(
        rows, position, empty_state(BLOCK_M, HEAD_PADDED), key_cache, value_cache, blocks, kv_head, begin, end, scale,
        True, WINDOW, KV_HEADS * HEAD_DIM, BLOCK_SIZE, HEAD_DIM, HEAD_PADDED, BLOCK_N, PRECISION)
    # fmt: on
    accumulated = accumulated / tl.where(total == 0.0, 1.0, total)[:, None]
    if SPLIT:
        place = (token * (KV_HEADS * GROUP) + head) * num_splits + split
        tl.store(log_sums + place, peak + tl.log2(total), mask=live)
        store_rows(partial, place * HEAD_DIM, live & (total > 0.0), accumulated, HEAD_DIM, HEAD_PADDED)
    else:
        store_rows(out, token * out_stride + head * HEAD_DIM, live, accumulated, HEAD_DIM, HEAD_PADDED)


@triton.jit(do_not_specialize=["num_splits"])
def _join_kernel(
    partial: tl.tensor,
    log_sums: tl.tensor,
    out: tl.tensor,
    out_stride: tl.tensor,
    num_splits: tl.tensor,
    SPLITS_PADDED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
) -> None:
    """Join the shares of one token and head, each weighted by its part of the softmax's sum."""
    head, token = tl.program_id(0), tl.program_id(1).to(tl.int64)
    split, column = tl.arange(0, SPLITS_PADDED), tl.arange(0, HEAD_PADDED)
    place = (token * tl.num_programs(0) + head) * num_splits + split
    log_sum = tl.load(log_sums + place, mask=split < num_splits, other=float("-inf"))
    used = log_sum > float("-inf")  # a share without keys left nothing to read
    inside = used[:, None] & (column < HEAD_DIM)[None, :]
    shares = tl.load(partial + place[:, None] * HEAD_DIM + column[None, :], mask=inside, other=0.0)
    peak = tl.max(log_sum, 0)
    weights = tl.where(used, tl.exp2(log_sum - peak), 0.0)
    total = tl.sum(weights, 0)
    joined = tl.sum(shares * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    at = out + token * out_stride + head * HEAD_DIM + column
    tl.store(at, joined.to(out.dtype.element_ty), mask=column < HEAD_DIM)


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
    block_size, num_kv_heads = key_cache.shape[1:3]
    group, num_reqs = num_heads // num_kv_heads, seq_lens.shape[0]
    config = config or decode_config(rows=query_len * group, head_dim=head_dim, element_bytes=query.element_size())
    assert num_splits == 1 or num_reqs * query_len * num_heads * num_splits <= workspace.rows
    head = {"HEAD_DIM": head_dim, "HEAD_PADDED": padded_head(head_dim)}
    _split_kernel[(num_kv_heads, num_splits, num_reqs)](
        query,
        out,
        workspace.partial,
        workspace.log_sums,
        key_cache,
        value_cache,
        seq_lens,
        block_table,
        query.stride(0),
        out.stride(0),
        block_table.stride(0),
        scale * LOG2_E,
        SPLIT=num_splits > 1,
        QUERY_LEN=query_len,
        WINDOW=window or 0,
        KV_HEADS=num_kv_heads,
        GROUP=group,
        BLOCK_SIZE=block_size,
        **head,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        PRECISION=dot_precision(query.dtype),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if num_splits > 1:
        _join(out, workspace, num_splits, head)


def _join(out: torch.Tensor, workspace: SplitWorkspace, num_splits: int, head: dict[str, int]) -> None:
    """Launch the second kernel; ``out`` [num_tokens, num_heads, head_dim]."""
    num_tokens, num_heads, _ = out.shape
    splits_padded = padded_power_of_2(num_splits)
    elements = splits_padded * head["HEAD_PADDED"]
    _join_kernel[(num_heads, num_tokens)](
        workspace.partial,
        workspace.log_sums,
        out,
        out.stride(0),
        num_splits,
        SPLITS_PADDED=splits_padded,
        **head,
        num_warps=min(8, max(1, elements // 1024)),
    )
