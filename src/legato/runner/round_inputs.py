"""From rows to the inputs of a round's parts, on the device. Owns where drafts are fed and where tokens are sampled.

The same functions run eagerly and inside graphs, and the host is not asked: a uniform round needs nothing of it but
the rows.
"""

from dataclasses import dataclass

import torch

from legato.attention.protocol import AttentionMetadata
from legato.graphs.key import KeyInts
from legato.kernels.draft_inputs import DraftInputs
from legato.runner.device_state import DeviceState
from legato.runner.drafter import TokenPlaces
from legato.runner.inputs import RequestInputs, TokenInputs, mixed_metadata
from legato.runner.round_buffers import RoundBuffers
from legato.runner.step_shape import StepShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlaces:
    """Where a round's tokens are sampled; a request with fewer drafts than others repeats its last place."""

    tokens: torch.Tensor | None  # [num_reqs * width] int64, among the flat tokens; None: all of them, in order
    positions: torch.Tensor  # [num_reqs, width] int64, of the tokens to be sampled
    starts: torch.Tensor  # [num_reqs] int32 or int64, first of each request's places among the flat tokens
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
    """Return ids, positions and attention metadata of a mixed step's tokens: known ones, then each row's drafts.

    Positions past the model's, which only tokens that never stand have, are given as ``max_position``; their keys and
    values go where the block table says, to the null block at last.
    """
    token_rows = buffers.token_rows.device[: shape.num_tokens]
    offsets = buffers.token_offsets.device[: shape.num_tokens]
    given = buffers.input_ids.device[: shape.num_tokens]
    input_ids = torch.where(given < 0, _from_state(token_rows, offsets, state), given)
    positions = state.num_computed.index_select(0, token_rows) + offsets
    metadata = mixed_metadata(shape, requests, token_rows, positions, state.block_table, block_size)
    return TokenInputs(input_ids=input_ids, positions=positions.clamp(max=max_position), metadata=metadata)


def sampled_places(
    shape: StepShape, requests: RequestInputs, buffers: RoundBuffers, state: DeviceState, width: int
) -> SampledPlaces:
    """Return where tokens are sampled: at a decode's first token and behind each draft, at a prompt's last token.

    ``width``: places of each request; of a uniform batch its query length.
    """
    num_drafts = buffers.num_drafts.device[: shape.num_reqs]
    starts = requests.query_start_loc[:-1]
    if requests.uniform is not None:
        positions = requests.uniform.next_positions.view(shape.num_reqs, width)
        return SampledPlaces(tokens=None, positions=positions, starts=starts, num_drafts=num_drafts)
    first = buffers.first_sampled.device[: shape.num_reqs]
    columns = torch.arange(width, device=num_drafts.device)
    # A padded request begins behind the last token; it takes that one, and nobody reads its result.
    starts = (starts.to(torch.int64) + first).clamp(max=shape.num_tokens - 1)
    tokens = (starts.unsqueeze(1) + torch.minimum(columns, num_drafts.unsqueeze(1))).reshape(-1)
    computed = state.num_computed.index_select(0, requests.rows) + first
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
    num_tokens = shape.num_tokens
    if shape.query_len is None:
        return TokenPlaces(
            rows=buffers.token_rows.device[:num_tokens], offsets=buffers.token_offsets.device[:num_tokens]
        )
    grid = (shape.num_reqs, shape.query_len)
    offsets = torch.arange(shape.query_len, device=rows.device)
    return TokenPlaces(rows=rows.unsqueeze(1).expand(grid).reshape(-1), offsets=offsets.expand(grid).reshape(-1))


def pass_metadata(begin: DraftInputs, index: int, key_ints: KeyInts) -> AttentionMetadata:
    """Return what a backend reads in the drafter's pass ``index``, one token of each request."""
    num_reqs = begin.next_tokens.shape[0]
    return AttentionMetadata(
        query_start_loc=begin.query_start_loc,
        seq_lens=begin.seq_lens[index],
        block_table=begin.block_table,
        slot_mapping=begin.slot_mapping[index],
        num_tokens=num_reqs,
        num_reqs=num_reqs,
        query_len=1,
        max_query_len=1,
        key_ints=dict(key_ints),
    )


def _from_state(token_rows: torch.Tensor, offsets: torch.Tensor, state: DeviceState) -> torch.Tensor:
    """Return the row's next token at offset 0 and its drafts behind it.  # [num_tokens] int64"""
    drafts = state.drafts[token_rows, (offsets - 1).clamp(0, state.drafts.shape[1] - 1)]
    return torch.where(offsets == 0, state.next_tokens.index_select(0, token_rows), drafts)
