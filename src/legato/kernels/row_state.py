"""What steps read from the rows of their requests, and what they write back: a few numbers each."""

from typing import NamedTuple

import torch


class RowState(NamedTuple):
    """What is kept of all rows."""

    next_tokens: torch.Tensor  # [num_rows] int64, the next input of each
    num_computed: torch.Tensor  # [num_rows] int64, tokens before it
    drafts: torch.Tensor  # [num_rows, num_drafts] int64, what may follow it
    block_table: torch.Tensor  # [num_rows, max_blocks] int32


class UniformInputs(NamedTuple):
    """Of a step with ``width`` tokens for each request: its next input, then drafts."""

    input_ids: torch.Tensor  # [num_reqs * width] int64
    positions: torch.Tensor  # [num_reqs * width] int64, within the model's
    next_positions: torch.Tensor  # [num_reqs * width] int64, of what follows each, which may lie past the model's
    slot_mapping: torch.Tensor  # [num_reqs * width] int64
    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    seq_lens: torch.Tensor  # [num_reqs] int32, this step's tokens included
    block_table: torch.Tensor  # [num_reqs, max_blocks] int32


def uniform_inputs(
    rows: torch.Tensor, state: RowState, *, width: int, block_size: int, max_position: int
) -> UniformInputs:
    """Return the inputs of a step that computes the next ``width`` tokens of each of ``rows`` [num_reqs] int64.

    ``max_position`` is given in place of positions past it; such a token's slot is where the block table says. On a GPU
    all of it is one launch.
    """
    if rows.is_cuda:
        from legato.kernels import row_state_triton

        return UniformInputs(*row_state_triton.uniform_inputs(rows, state, width, block_size, max_position))
    return uniform_inputs_reference(rows, state, width=width, block_size=block_size, max_position=max_position)


def uniform_inputs_reference(
    rows: torch.Tensor, state: RowState, *, width: int, block_size: int, max_position: int
) -> UniformInputs:
    """Compute :func:`uniform_inputs` with torch alone."""
    num_reqs = rows.shape[0]
    columns = torch.arange(width, device=rows.device)
    positions = state.num_computed.index_select(0, rows).unsqueeze(1) + columns  # [num_reqs, width]
    input_ids = state.next_tokens.index_select(0, rows)
    if width > 1:
        drafts = state.drafts.index_select(0, rows)[:, : width - 1]
        input_ids = torch.cat([input_ids.unsqueeze(1), drafts], dim=1).view(-1)
    next_positions = positions + 1
    return UniformInputs(
        input_ids=input_ids,
        positions=positions.view(-1).clamp(max=max_position),
        next_positions=next_positions.view(-1),
        slot_mapping=slots(state.block_table, rows.unsqueeze(1), positions, block_size).view(-1),
        query_start_loc=torch.arange(0, num_reqs * width + 1, width, dtype=torch.int32, device=rows.device),
        seq_lens=next_positions[:, -1].to(torch.int32),
        block_table=state.block_table.index_select(0, rows),
    )


def slots(block_table: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, block_size: int) -> torch.Tensor:
    """Return where the cache keeps ``positions`` of ``rows``, both int64 and of shapes that go together."""
    return block_table[rows, positions // block_size] * block_size + positions % block_size


def advance(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    state: RowState,
    null_row: int,
    drafts: torch.Tensor | None = None,
) -> None:
    """Write ``token_ids`` and ``seq_lens``, both [num_reqs] int64, to ``rows``; the length of ``null_row`` stays 0.

    ``drafts`` [num_reqs, k] int64 become the first ``k`` of their rows; None: all stay as they are. On a GPU all of it
    is one launch.
    """
    if rows.is_cuda:
        from legato.kernels import row_state_triton

        row_state_triton.advance(rows, seq_lens, token_ids, state, null_row, drafts)
    else:
        advance_reference(rows, seq_lens, token_ids, state, null_row, drafts)


def advance_reference(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    state: RowState,
    null_row: int,
    drafts: torch.Tensor | None = None,
) -> None:
    """Compute :func:`advance` with torch alone."""
    state.next_tokens.index_copy_(0, rows, token_ids)
    state.num_computed.index_copy_(0, rows, seq_lens.masked_fill(rows == null_row, 0))
    if drafts is not None:
        state.drafts[:, : drafts.shape[1]].index_copy_(0, rows, drafts)
