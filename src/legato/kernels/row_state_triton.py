# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.row_state`."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before

_BLOCK = 1024
_NUM_WARPS = 4


@triton.jit(do_not_specialize=["table_stride", "max_blocks"])
def _decode_inputs_kernel(
    rows: tl.tensor,
    seq_lens: tl.tensor,
    next_tokens: tl.tensor,
    block_table: tl.tensor,
    input_ids: tl.tensor,
    positions: tl.tensor,
    slot_mapping: tl.tensor,
    step_seq_lens: tl.tensor,
    step_table: tl.tensor,
    table_stride: tl.tensor,
    max_blocks: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Copy a part of one request's block table; the first part's program copies the request's numbers too."""
    wait_for_the_kernel_before(EARLY)
    part, request = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows + request)
    blocks = block_table + row * table_stride
    column = part * BLOCK + tl.arange(0, BLOCK)
    copied = tl.load(blocks + column, mask=column < max_blocks, other=0)
    if part == 0:
        seq_len = tl.load(seq_lens + request)
        position = seq_len - 1
        block = tl.load(blocks + position // BLOCK_SIZE).to(tl.int64)
        tl.store(input_ids + request, tl.load(next_tokens + row))
        tl.store(positions + request, position)
        tl.store(slot_mapping + request, block * BLOCK_SIZE + position % BLOCK_SIZE)
        tl.store(step_seq_lens + request, seq_len.to(tl.int32))
    tl.store(step_table + request.to(tl.int64) * max_blocks + column, copied, mask=column < max_blocks)


@triton.jit(do_not_specialize=["num_reqs", "null_row"])
def _advance_kernel(
    rows: tl.tensor,
    seq_lens: tl.tensor,
    token_ids: tl.tensor,
    next_tokens: tl.tensor,
    num_computed: tl.tensor,
    num_reqs: tl.tensor,
    null_row: tl.tensor,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    request = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = request < num_reqs
    row = tl.load(rows + request, mask=inside, other=0)
    tl.store(next_tokens + row, tl.load(token_ids + request, mask=inside, other=0), mask=inside)
    seq_len = tl.load(seq_lens + request, mask=inside, other=0)
    tl.store(num_computed + row, tl.where(row == null_row, 0, seq_len), mask=inside)


def decode_inputs(
    rows: torch.Tensor, seq_lens: torch.Tensor, next_tokens: torch.Tensor, block_table: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, positions, slots, lengths and block tables of a step with one token per request."""
    num_reqs, max_blocks = rows.shape[0], block_table.shape[1]
    assert block_table.stride(1) == 1
    input_ids, positions, slot_mapping = (torch.empty_like(rows) for _ in range(3))
    step_seq_lens = torch.empty(num_reqs, dtype=torch.int32, device=rows.device)
    step_table = torch.empty(num_reqs, max_blocks, dtype=torch.int32, device=rows.device)
    _decode_inputs_kernel[(triton.cdiv(max_blocks, _BLOCK), num_reqs)](
        rows,
        seq_lens,
        next_tokens,
        block_table,
        input_ids,
        positions,
        slot_mapping,
        step_seq_lens,
        step_table,
        block_table.stride(0),
        max_blocks,
        BLOCK_SIZE=block_size,
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
    return input_ids, positions, slot_mapping, step_seq_lens, step_table


def advance(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    num_computed: torch.Tensor,
    null_row: int,
) -> None:
    """Write tokens and lengths to their rows."""
    num_reqs = rows.shape[0]
    _advance_kernel[(triton.cdiv(num_reqs, _BLOCK),)](
        rows,
        seq_lens,
        token_ids,
        next_tokens,
        num_computed,
        num_reqs,
        null_row,
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
