"""From rows to the inputs of a round's parts, on the device. Owns where drafts are fed and where tokens are sampled.

The same functions run eagerly and inside graphs, and the host is not asked: a uniform round needs nothing of it but
the rows.
"""

from dataclasses import dataclass

import torch

from legato.attention.protocol import AttentionMetadata
from legato.graphs.key import KeyInts
from legato.runner.device_state import DeviceState
from legato.runner.drafter import TokenPlaces
from legato.runner.inputs import RequestInputs, TokenInputs
from legato.runner.round_buffers import RoundBuffers
from legato.runner.step_shape import StepShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlaces:
    """Where a round's tokens are sampled; a request with fewer drafts than others repeats its last place."""

    tokens: torch.Tensor | None  # [num_reqs * width] int64, among the flat tokens; None: all of them, in order
    positions: torch.Tensor  # [num_reqs, width] int64, of the tokens to be sampled
    starts: torch.Tensor  # [num_reqs] int64, first of each request's places among the flat tokens
    num_drafts: torch.Tensor  # [num_reqs] int64


def round_token_inputs(
    shape: StepShape,
    requests: RequestInputs,
    buffers: RoundBuffers,
    state: DeviceState,
    *,
    block_size: int,
    max_position: int,
) -> TokenInputs:
    """Return ids, positions and attention metadata of the step's tokens: known ones, then each row's drafts.

    Positions past the model's, which only tokens that never stand have, are given as ``max_position``; their keys and
    values go where the block table says, to the null block at last.
    """
    if shape.query_len is not None:
        token_rows, offsets, input_ids = _uniform_tokens(shape, shape.query_len, requests.rows, state)
    else:
        token_rows = buffers.token_rows.device[: shape.num_tokens]
        offsets = buffers.token_offsets.device[: shape.num_tokens]
        given = buffers.input_ids.device[: shape.num_tokens]
        input_ids = torch.where(given < 0, _from_state(token_rows, offsets, state), given)
    positions = state.num_computed.index_select(0, token_rows) + offsets
    metadata = AttentionMetadata(
        query_start_loc=requests.query_start_loc,
        seq_lens=requests.seq_lens.to(torch.int32),
        block_table=state.block_table.index_select(0, requests.rows),
        slot_mapping=_slots(token_rows, positions, state, block_size),
        num_tokens=shape.num_tokens,
        num_reqs=shape.num_reqs,
        query_len=shape.query_len,
        max_query_len=shape.max_query_len,
        key_ints=dict(shape.key_ints),
    )
    return TokenInputs(input_ids=input_ids, positions=positions.clamp(max=max_position), metadata=metadata)


def sampled_places(
    shape: StepShape, requests: RequestInputs, buffers: RoundBuffers, state: DeviceState, width: int
) -> SampledPlaces:
    """Return where tokens are sampled: at a decode's first token and behind each draft, at a prompt's last token.

    ``width``: places of each request; of a uniform batch its query length.
    """
    num_drafts = buffers.num_drafts.device[: shape.num_reqs]
    starts = requests.query_start_loc[:-1].to(torch.int64)
    columns = torch.arange(width, device=num_drafts.device)
    computed = state.num_computed.index_select(0, requests.rows)
    tokens = None
    if shape.query_len is None:
        first = buffers.first_sampled.device[: shape.num_reqs]
        # A padded request begins behind the last token; it takes that one, and nobody reads its result.
        starts, computed = (starts + first).clamp(max=shape.num_tokens - 1), computed + first
        tokens = (starts.unsqueeze(1) + torch.minimum(columns, num_drafts.unsqueeze(1))).reshape(-1)
    positions = computed.unsqueeze(1) + 1 + columns
    return SampledPlaces(tokens=tokens, positions=positions, starts=starts, num_drafts=num_drafts)


def following_ids(
    shape: StepShape, requests: RequestInputs, input_ids: torch.Tensor, buffers: RoundBuffers, state: DeviceState
) -> torch.Tensor:
    """Return the id after each of the step's tokens, as far as it is known now.  # [num_tokens] int64"""
    sampled = buffers.sampled[: shape.num_reqs]  # [num_reqs, width]
    if shape.query_len is not None:
        return sampled[:, : shape.query_len].reshape(-1)
    token_rows = buffers.token_rows.device[: shape.num_tokens]
    offsets = buffers.token_offsets.device[: shape.num_tokens]
    num_rows = state.next_tokens.shape[0]
    by_row = sampled.new_zeros(num_rows, sampled.shape[1]).index_copy_(0, requests.rows, sampled)
    first = sampled.new_zeros(num_rows).index_copy_(0, requests.rows, buffers.first_sampled.device[: shape.num_reqs])
    columns = offsets - first.index_select(0, token_rows)
    sampled_there = by_row[token_rows, columns.clamp(0, sampled.shape[1] - 1)]
    return torch.where(columns >= 0, sampled_there, input_ids.roll(-1))


def token_places(shape: StepShape, rows: torch.Tensor, buffers: RoundBuffers) -> TokenPlaces:
    """Return whose tokens the step's are; ``rows`` [num_reqs] int64 of its requests."""
    if shape.query_len is not None:
        token_rows, offsets = _uniform_places(shape, shape.query_len, rows)
        return TokenPlaces(rows=token_rows, offsets=offsets)
    num_tokens = shape.num_tokens
    return TokenPlaces(rows=buffers.token_rows.device[:num_tokens], offsets=buffers.token_offsets.device[:num_tokens])


def single_token_metadata(
    rows: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    state: DeviceState,
    key_ints: KeyInts,
    *,
    block_size: int,
) -> AttentionMetadata:
    """Return the metadata of one token for each of ``rows`` [num_reqs] at ``positions`` [num_reqs].

    ``block_table`` [num_reqs, max_blocks_per_req] is that of the rows.
    """
    num_reqs = rows.shape[0]
    return AttentionMetadata(
        query_start_loc=torch.arange(num_reqs + 1, dtype=torch.int32, device=rows.device),
        seq_lens=(positions + 1).to(torch.int32),
        block_table=block_table,
        slot_mapping=_slots(rows, positions, state, block_size),
        num_tokens=num_reqs,
        num_reqs=num_reqs,
        query_len=1,
        max_query_len=1,
        key_ints=dict(key_ints),
    )


def _uniform_tokens(
    shape: StepShape, width: int, rows: torch.Tensor, state: DeviceState
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return row, offset and id of each token, all [num_tokens] int64."""
    token_rows, offsets = _uniform_places(shape, width, rows)
    next_tokens = state.next_tokens.index_select(0, rows).unsqueeze(1)
    drafts = state.drafts.index_select(0, rows)[:, : width - 1]
    return token_rows, offsets, torch.cat([next_tokens, drafts], dim=1).reshape(-1)


def _uniform_places(shape: StepShape, width: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and offset of each token, both [num_tokens] int64."""
    grid = (shape.num_reqs, width)
    offsets = torch.arange(width, device=rows.device)
    return rows.unsqueeze(1).expand(grid).reshape(-1), offsets.expand(grid).reshape(-1)


def _from_state(token_rows: torch.Tensor, offsets: torch.Tensor, state: DeviceState) -> torch.Tensor:
    """Return the row's next token at offset 0 and its drafts behind it.  # [num_tokens] int64"""
    drafts = state.drafts[token_rows, (offsets - 1).clamp(0, state.drafts.shape[1] - 1)]
    return torch.where(offsets == 0, state.next_tokens.index_select(0, token_rows), drafts)


def _slots(rows: torch.Tensor, positions: torch.Tensor, state: DeviceState, block_size: int) -> torch.Tensor:
    return state.block_table[rows, positions // block_size] * block_size + positions % block_size
