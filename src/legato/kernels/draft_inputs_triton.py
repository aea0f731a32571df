# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.draft_inputs`."""

import torch
import triton
import triton.language as tl

from legato.kernels.draft_inputs import DraftInputs, Judged
from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before

_BLOCK = 1024
_NUM_WARPS = 4
_ALIGNMENT = 4
"""Requests after which a pass may begin: 16 bytes, so that kernels read its inputs as they read any others."""
_SIZES = (
    *("outcome_stride", "count_column", "table_stride", "pass_stride"),
    *("max_blocks", "num_reqs", "null_row", "max_position"),
)


@triton.jit(do_not_specialize=_SIZES)
def _draft_inputs_kernel(
    rows: tl.tensor,
    outcome: tl.tensor,
    last_positions: tl.tensor,
    last_places: tl.tensor,
    states: tl.tensor,
    block_table: tl.tensor,
    next_tokens: tl.tensor,
    next_positions: tl.tensor,
    state: tl.tensor,
    positions: tl.tensor,
    slot_mapping: tl.tensor,
    seq_lens: tl.tensor,
    query_start_loc: tl.tensor,
    pass_table: tl.tensor,
    outcome_stride: tl.tensor,
    count_column: tl.tensor,
    table_stride: tl.tensor,
    states_stride: tl.tensor,
    pass_stride: tl.tensor,
    max_blocks: tl.tensor,
    num_reqs: tl.tensor,
    null_row: tl.tensor,
    max_position: tl.tensor,
    STATE_SIZE: tl.constexpr,
    NUM_PASSES: tl.constexpr,
    BLOCK_PASSES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Copy a part of one request's state and block table; the first part's program gives all else of the request."""
    wait_for_the_kernel_before(EARLY)
    part, request = tl.program_id(0), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + request)
    blocks = block_table + row * table_stride
    if part == 0:
        new = outcome + request * outcome_stride
        position = tl.where(row == null_row, 0, tl.load(last_positions + request))
        tl.store(next_tokens + request, tl.load(new + tl.load(new + count_column) - 1))
        tl.store(next_positions + request, position)
        tl.store(query_start_loc + request, request)
        tl.store(query_start_loc + num_reqs, num_reqs)  # every request's program says the same
        if NUM_PASSES > 0:
            index = tl.arange(0, BLOCK_PASSES)
            inside = index < NUM_PASSES
            there = position + index
            block = tl.load(blocks + there // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
            place = index * pass_stride + request
            tl.store(positions + place, tl.minimum(there, max_position), mask=inside)
            tl.store(slot_mapping + place, block * BLOCK_SIZE + there % BLOCK_SIZE, mask=inside)
            tl.store(seq_lens + place, (there + 1).to(tl.int32), mask=inside)
    if STATE_SIZE > 0:
        source = states + tl.load(last_places + request) * states_stride
        values = tl.load(source + column, mask=column < STATE_SIZE)
        tl.store(state + request.to(tl.int64) * STATE_SIZE + column, values, mask=column < STATE_SIZE)
    if NUM_PASSES > 0:
        copied = tl.load(blocks + column, mask=column < max_blocks)
        tl.store(pass_table + request.to(tl.int64) * max_blocks + column, copied, mask=column < max_blocks)


def draft_inputs(
    judged: Judged, block_table: torch.Tensor, *, null_row: int, num_passes: int, block_size: int, max_position: int
) -> DraftInputs:
    """Return next tokens, positions and states, then the inputs of all passes."""
    rows, outcome, _, _, states = judged
    num_reqs, max_blocks = rows.shape[0], block_table.shape[1] if num_passes else 0
    state_size = 0 if states is None else states.shape[1]
    assert outcome.stride(1) == block_table.stride(1) == 1 and (states is None or states.stride(1) == 1)
    pass_stride = triton.cdiv(num_reqs, _ALIGNMENT) * _ALIGNMENT
    given = DraftInputs(
        next_tokens=torch.empty_like(rows),
        next_positions=torch.empty_like(rows),
        state=None if states is None else states.new_empty(num_reqs, state_size),
        positions=rows.new_empty(num_passes, pass_stride)[:, :num_reqs],
        slot_mapping=rows.new_empty(num_passes, pass_stride)[:, :num_reqs],
        seq_lens=block_table.new_empty(num_passes, pass_stride)[:, :num_reqs],
        query_start_loc=block_table.new_empty(num_reqs + 1),
        block_table=block_table.new_empty(num_reqs, max_blocks),
    )
    parts = triton.cdiv(max(1, max_blocks, state_size), _BLOCK)
    _draft_inputs_kernel[(parts, num_reqs)](
        *judged._replace(states=rows if states is None else states),
        block_table,
        *given._replace(state=rows if given.state is None else given.state),
        outcome.stride(0),
        outcome.shape[1] - 1,
        block_table.stride(0),
        0 if states is None else states.stride(0),
        pass_stride,
        max_blocks,
        num_reqs,
        null_row,
        max_position,
        STATE_SIZE=state_size,
        NUM_PASSES=num_passes,
        BLOCK_PASSES=triton.next_power_of_2(max(1, num_passes)),
        BLOCK_SIZE=block_size,
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
    return given
