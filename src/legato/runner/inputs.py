"""From rows to model inputs, on the device. Owns positions, slots and attention metadata; the host is not asked.

The same functions run eagerly and inside graphs. Sizes are host integers, frozen at capture; all else is read from
persistent buffers when the step runs.
"""

from dataclasses import dataclass

import torch

from legato.attention.protocol import AttentionMetadata
from legato.kernels.row_state import UniformInputs, slots, uniform_inputs
from legato.runner.buffers import StepBuffers
from legato.runner.device_state import DeviceState
from legato.runner.step_shape import StepShape


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInputs:
    """Per request."""

    rows: torch.Tensor  # [num_reqs] int64
    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    seq_lens: torch.Tensor  # [num_reqs] int64, this step's tokens included
    uniform: UniformInputs | None = None
    """What is read of the tokens of a uniform batch with these, in one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInputs:
    """Per token."""

    input_ids: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    metadata: AttentionMetadata


def request_inputs(
    shape: StepShape, buffers: StepBuffers, state: DeviceState, *, block_size: int, max_position: int
) -> RequestInputs:
    """Return the batch's rows with their places in the step and their lengths after it.

    ``max_position``: the last that the model has; further on are only tokens that never stand.
    """
    rows, width = buffers.rows.device[: shape.num_reqs], shape.query_len
    if width is not None:
        read = uniform_inputs(rows, state.row_state, width=width, block_size=block_size, max_position=max_position)
        seq_lens = read.next_positions[width - 1 :: width]
        return RequestInputs(rows=rows, query_start_loc=read.query_start_loc, seq_lens=seq_lens, uniform=read)
    computed = state.num_computed.index_select(0, rows)
    starts = buffers.query_start_loc.device[: shape.num_reqs + 1]
    # A padded request has no tokens and sits on the null row, so that its length stays 0.
    return RequestInputs(rows=rows, query_start_loc=starts, seq_lens=computed + (starts[1:] - starts[:-1]))


def token_inputs(
    shape: StepShape, requests: RequestInputs, buffers: StepBuffers, state: DeviceState, *, block_size: int
) -> TokenInputs:
    """Return ids, positions and attention metadata of the step's tokens."""
    read = requests.uniform
    if read is not None:
        metadata = _metadata(shape, requests, read.seq_lens, read.block_table, read.slot_mapping)
        return TokenInputs(input_ids=read.input_ids, positions=read.positions, metadata=metadata)
    token_rows = buffers.token_rows.device[: shape.num_tokens]
    given = buffers.input_ids.device[: shape.num_tokens]
    positions = state.num_computed.index_select(0, token_rows) + buffers.token_offsets.device[: shape.num_tokens]
    input_ids = torch.where(given < 0, state.next_tokens.index_select(0, token_rows), given)
    metadata = mixed_metadata(shape, requests, token_rows, positions, state.block_table, block_size)
    return TokenInputs(input_ids=input_ids, positions=positions, metadata=metadata)


def mixed_metadata(
    shape: StepShape,
    requests: RequestInputs,
    token_rows: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
) -> AttentionMetadata:
    """Return what a backend reads of a mixed step, whose tokens stand at ``positions`` of ``token_rows``.

    Both [num_tokens] int64; ``block_table`` [num_rows, max_blocks] int32 of all rows.
    """
    slot_mapping = slots(block_table, token_rows, positions, block_size)
    step_table = block_table.index_select(0, requests.rows)
    return _metadata(shape, requests, requests.seq_lens.to(torch.int32), step_table, slot_mapping)


def last_tokens(shape: StepShape, requests: RequestInputs) -> torch.Tensor | None:
    """Return the index of each request's last token in the step, [num_reqs] int64; None: token i is request i's.

    A padded request repeats a real token's index; its result is not used.
    """
    if shape.query_len == 1:
        return None
    return (requests.query_start_loc[1:] - 1).clamp(min=0).to(torch.int64)


def _metadata(
    shape: StepShape,
    requests: RequestInputs,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> AttentionMetadata:
    return AttentionMetadata(
        query_start_loc=requests.query_start_loc,
        seq_lens=seq_lens,
        block_table=block_table,
        slot_mapping=slot_mapping,
        num_tokens=shape.num_tokens,
        num_reqs=shape.num_reqs,
        query_len=shape.query_len,
        max_query_len=shape.max_query_len,
        key_ints=dict(shape.key_ints),
    )
