"""Where a round's drafts begin, and the inputs of the passes that make them: one token of each request in each pass."""

from typing import NamedTuple

import torch

from legato.kernels.row_state import slots


class DraftInputs(NamedTuple):
    """Pass ``i`` stands ``i`` places behind the last new token; its inputs are row ``i``."""

    next_tokens: torch.Tensor  # [num_reqs] int64, the last new token that counts
    next_positions: torch.Tensor  # [num_reqs] int64, its position, which may lie past the model's
    positions: torch.Tensor  # [num_passes, num_reqs] int64, within the model's
    slot_mapping: torch.Tensor  # [num_passes, num_reqs] int64
    seq_lens: torch.Tensor  # [num_passes, num_reqs] int32, the pass's token included
    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    block_table: torch.Tensor  # [num_reqs, max_blocks] int32; without passes [num_reqs, 0]


def draft_inputs(
    rows: torch.Tensor,
    outcome: torch.Tensor,
    next_positions: torch.Tensor,
    block_table: torch.Tensor,
    *,
    null_row: int,
    num_passes: int,
    block_size: int,
    max_position: int,
) -> DraftInputs:
    """Return where ``rows`` [num_reqs] int64 go on, and the inputs of ``num_passes`` passes over them.

    ``outcome`` [num_reqs, most + 1] int64: new tokens, then how many of them count; ``next_positions`` [num_reqs]
    int64, of the last that counts; ``block_table`` [num_rows, max_blocks] int32 of all rows. A request on ``null_row``
    may find what an earlier batch left, and is at position 0, where it costs no attention. ``max_position`` is given in
    place of positions past it. On a GPU all of it is one launch.
    """
    more = {"null_row": null_row, "num_passes": num_passes, "block_size": block_size, "max_position": max_position}
    if rows.is_cuda:
        from legato.kernels import draft_inputs_triton

        return DraftInputs(*draft_inputs_triton.draft_inputs(rows, outcome, next_positions, block_table, **more))
    return draft_inputs_reference(rows, outcome, next_positions, block_table, **more)


def draft_inputs_reference(
    rows: torch.Tensor,
    outcome: torch.Tensor,
    next_positions: torch.Tensor,
    block_table: torch.Tensor,
    *,
    null_row: int,
    num_passes: int,
    block_size: int,
    max_position: int,
) -> DraftInputs:
    """Compute :func:`draft_inputs` with torch alone."""
    next_positions = next_positions.masked_fill(rows == null_row, 0)
    columns = torch.arange(num_passes, device=rows.device)
    positions = next_positions + columns.unsqueeze(1)  # [num_passes, num_reqs]
    return DraftInputs(
        next_tokens=outcome.gather(1, outcome[:, -1:] - 1).squeeze(1),
        next_positions=next_positions,
        positions=positions.clamp(max=max_position),
        slot_mapping=slots(block_table, rows, positions, block_size),
        seq_lens=(positions + 1).to(torch.int32),
        query_start_loc=torch.arange(rows.shape[0] + 1, dtype=torch.int32, device=rows.device),
        block_table=block_table.index_select(0, rows)[:, : block_table.shape[1] if num_passes else 0],
    )
