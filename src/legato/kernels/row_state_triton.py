# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.row_state`."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.row_state import RowState

_BLOCK = 1024
_NUM_WARPS = 4


@triton.jit(do_not_specialize=["drafts_stride", "table_stride", "max_blocks", "num_reqs", "max_position"])
def _uniform_inputs_kernel(
    rows: tl.tensor,
    next_tokens: tl.tensor,
    num_computed: tl.tensor,
    drafts: tl.tensor,
    block_table: tl.tensor,
    input_ids: tl.tensor,
    positions: tl.tensor,
    next_positions: tl.tensor,
    slot_mapping: tl.tensor,
    query_start_loc: tl.tensor,
    seq_lens: tl.tensor,
    step_table: tl.tensor,
    drafts_stride: tl.tensor,
    table_stride: tl.tensor,
    max_blocks: tl.tensor,
    num_reqs: tl.tensor,
    max_position: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Copy a part of one request's block table; the first part's program gives the request's tokens too."""
    wait_for_the_kernel_before(EARLY)
    part, request = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows + request)
    blocks = block_table + row * table_stride
    part_column = part * BLOCK + tl.arange(0, BLOCK)
    copied = tl.load(blocks + part_column, mask=part_column < max_blocks, other=0)
    if part == 0:
        column = tl.arange(0, BLOCK_WIDTH)
        inside = column < WIDTH
        position = tl.load(num_computed + row) + column
        drafted = tl.load(drafts + row * drafts_stride + column - 1, mask=inside & (column > 0), other=0)
        block = tl.load(blocks + position // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
        place = request * WIDTH + column
        tl.store(input_ids + place, tl.where(column == 0, tl.load(next_tokens + row), drafted), mask=inside)
        tl.store(positions + place, tl.minimum(position, max_position), mask=inside)
        tl.store(next_positions + place, position + 1, mask=inside)
        tl.store(slot_mapping + place, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=inside)
        tl.store(query_start_loc + request, request * WIDTH)
        tl.store(query_start_loc + num_reqs, num_reqs * WIDTH)  # every request's program says the same
        tl.store(seq_lens + request, (tl.load(num_computed + row) + WIDTH).to(tl.int32))
    tl.store(step_table + request.to(tl.int64) * max_blocks + part_column, copied, mask=part_column < max_blocks)


@triton.jit(do_not_specialize=["num_reqs", "null_row", "request_stride", "draft_stride", "kept_stride"])
def _advance_kernel(
    rows: tl.tensor,
    seq_lens: tl.tensor,
    token_ids: tl.tensor,
    drafts: tl.tensor,
    next_tokens: tl.tensor,
    num_computed: tl.tensor,
    kept_drafts: tl.tensor,
    num_reqs: tl.tensor,
    null_row: tl.tensor,
    request_stride: tl.tensor,
    draft_stride: tl.tensor,
    kept_stride: tl.tensor,
    NUM_DRAFTS: tl.constexpr,
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
    for place in tl.static_range(NUM_DRAFTS):
        draft = tl.load(drafts + request * request_stride + place * draft_stride, mask=inside, other=0)
        tl.store(kept_drafts + row * kept_stride + place, draft, mask=inside)


def uniform_inputs(
    rows: torch.Tensor, state: RowState, width: int, block_size: int, max_position: int
) -> tuple[torch.Tensor, ...]:
    """Return the inputs of a step with ``width`` tokens for each request."""
    num_reqs, max_blocks = rows.shape[0], state.block_table.shape[1]
    assert state.block_table.stride(1) == 1 and (width == 1 or state.drafts.stride(1) == 1)
    device, num_tokens = rows.device, num_reqs * width
    input_ids, positions, next_positions, slot_mapping = (
        torch.empty(num_tokens, dtype=torch.int64, device=device) for _ in range(4)
    )
    query_start_loc = torch.empty(num_reqs + 1, dtype=torch.int32, device=device)
    seq_lens = torch.empty(num_reqs, dtype=torch.int32, device=device)
    step_table = torch.empty(num_reqs, max_blocks, dtype=torch.int32, device=device)
    given = (input_ids, positions, next_positions, slot_mapping, query_start_loc, seq_lens, step_table)
    _uniform_inputs_kernel[(triton.cdiv(max_blocks, _BLOCK), num_reqs)](
        rows,
        *state,
        *given,
        state.drafts.stride(0),
        state.block_table.stride(0),
        max_blocks,
        num_reqs,
        max_position,
        WIDTH=width,
        BLOCK_WIDTH=triton.next_power_of_2(width),
        BLOCK_SIZE=block_size,
        BLOCK=_BLOCK,
        **early_start(num_tokens),
        num_warps=_NUM_WARPS,
    )
    return given


def advance(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    state: RowState,
    null_row: int,
    drafts: torch.Tensor | None,
) -> None:
    """Write tokens, lengths and drafts to their rows."""
    num_reqs = rows.shape[0]
    assert drafts is None or state.drafts.stride(1) == 1
    _advance_kernel[(triton.cdiv(num_reqs, _BLOCK),)](
        rows,
        seq_lens,
        token_ids,
        rows if drafts is None else drafts,
        state.next_tokens,
        state.num_computed,
        state.drafts,
        num_reqs,
        null_row,
        0 if drafts is None else drafts.stride(0),
        0 if drafts is None else drafts.stride(1),
        state.drafts.stride(0),
        NUM_DRAFTS=0 if drafts is None else drafts.shape[1],
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
