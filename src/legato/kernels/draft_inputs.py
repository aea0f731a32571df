"""Where a round's drafts begin, and the inputs of the passes that make them: one token of each request in each pass."""

from typing import NamedTuple

import torch

from legato.kernels.row_state import slots


class Judged(NamedTuple):
    """What a round's target and the pass behind it leave for its requests."""

    rows: torch.Tensor  # [num_reqs] int64
    outcome: torch.Tensor  # [num_reqs, most + 1] int64: new tokens, then how many of them count
    last_positions: torch.Tensor  # [num_reqs] int64, of the last that counts, which may lie past the model's
    last_places: torch.Tensor  # [num_reqs] int64, of the token before it among the step's flat tokens
    states: torch.Tensor | None  # [num_tokens, state_size], a drafter's after each of these tokens; None: not needed


class DraftInputs(NamedTuple):
    """Pass ``i`` stands ``i`` places behind the last new token; its inputs are row ``i``."""

    next_tokens: torch.Tensor  # [num_reqs] int64, the last new token that counts
    next_positions: torch.Tensor  # [num_reqs] int64, its position
    state: torch.Tensor | None  # [num_reqs, state_size], at the token before it
    positions: torch.Tensor  # [num_passes, num_reqs] int64, within the model's
    slot_mapping: torch.Tensor  # [num_passes, num_reqs] int64
    seq_lens: torch.Tensor  # [num_passes, num_reqs] int32, the pass's token included
    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    block_table: torch.Tensor  # [num_reqs, max_blocks] int32; without passes [num_reqs, 0]


def draft_inputs(
    judged: Judged, block_table: torch.Tensor, *, null_row: int, num_passes: int, block_size: int, max_position: int
) -> DraftInputs:
    """Return where the requests go on, and the inputs of ``num_passes`` passes over them.

    ``block_table`` [num_rows, max_blocks] int32 of all rows. A request on ``null_row`` may find what an earlier batch
    left, and is at position 0, where it costs no attention. ``max_position`` is given in place of positions past it. On
    a GPU all of it is one launch.
    """
    more = {"null_row": null_row, "num_passes": num_passes, "block_size": block_size, "max_position": max_position}
    if judged.rows.is_cuda:
        from legato.kernels import draft_inputs_triton

        return draft_inputs_triton.draft_inputs(judged, block_table, **more)
    return draft_inputs_reference(judged, block_table, **more)


def draft_inputs_reference(
    judged: Judged, block_table: torch.Tensor, *, null_row: int, num_passes: int, block_size: int, max_position: int
) -> DraftInputs:
    """Compute :func:`draft_inputs` with torch alone."""
    rows, outcome, last_positions, last_places, states = judged
    next_positions = last_positions.masked_fill(rows == null_row, 0)
    columns = torch.arange(num_passes, device=rows.device)
    positions = next_positions + columns.unsqueeze(1)  # [num_passes, num_reqs]
    return DraftInputs(
        next_tokens=outcome.gather(1, outcome[:, -1:] - 1).squeeze(1),
        next_positions=next_positions,
        state=None if states is None else states.index_select(0, last_places),
        positions=positions.clamp(max=max_position),
        slot_mapping=slots(block_table, rows, positions, block_size),
        seq_lens=(positions + 1).to(torch.int32),
        query_start_loc=torch.arange(rows.shape[0] + 1, dtype=torch.int32, device=rows.device),
        block_table=block_table.index_select(0, rows)[:, : block_table.shape[1] if num_passes else 0],
    )
