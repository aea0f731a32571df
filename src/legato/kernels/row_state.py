"""What a decode step reads from the rows of its requests, and what it writes back: a few numbers each."""

from typing import NamedTuple

import torch


class DecodeInputs(NamedTuple):
    """Of a step with one token per request."""

    input_ids: torch.Tensor  # [num_reqs] int64
    positions: torch.Tensor  # [num_reqs] int64
    slot_mapping: torch.Tensor  # [num_reqs] int64
    seq_lens: torch.Tensor  # [num_reqs] int32
    block_table: torch.Tensor  # [num_reqs, max_blocks] int32


def decode_inputs(
    rows: torch.Tensor, seq_lens: torch.Tensor, next_tokens: torch.Tensor, block_table: torch.Tensor, block_size: int
) -> DecodeInputs:
    """Return the inputs of a step that takes ``rows`` [num_reqs] int64 to ``seq_lens`` [num_reqs] int64 tokens.

    ``next_tokens`` [num_rows] int64 and ``block_table`` [num_rows, max_blocks] int32 are those of all rows. On a GPU
    all of it is one launch.
    """
    if rows.is_cuda:
        from legato.kernels import row_state_triton

        return DecodeInputs(*row_state_triton.decode_inputs(rows, seq_lens, next_tokens, block_table, block_size))
    return decode_inputs_reference(rows, seq_lens, next_tokens, block_table, block_size)


def decode_inputs_reference(
    rows: torch.Tensor, seq_lens: torch.Tensor, next_tokens: torch.Tensor, block_table: torch.Tensor, block_size: int
) -> DecodeInputs:
    """Compute :func:`decode_inputs` with torch alone."""
    positions = seq_lens - 1
    blocks = block_table[rows, positions // block_size]
    return DecodeInputs(
        input_ids=next_tokens.index_select(0, rows),
        positions=positions,
        slot_mapping=blocks * block_size + positions % block_size,
        seq_lens=seq_lens.to(torch.int32),
        block_table=block_table.index_select(0, rows),
    )


def advance(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    num_computed: torch.Tensor,
    null_row: int,
) -> None:
    """Write ``token_ids`` and ``seq_lens``, both [num_reqs] int64, to ``rows`` of the rest; ``null_row`` stays at 0."""
    if rows.is_cuda:
        from legato.kernels import row_state_triton

        row_state_triton.advance(rows, seq_lens, token_ids, next_tokens, num_computed, null_row)
    else:
        advance_reference(rows, seq_lens, token_ids, next_tokens, num_computed, null_row)


def advance_reference(
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    token_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    num_computed: torch.Tensor,
    null_row: int,
) -> None:
    """Compute :func:`advance` with torch alone."""
    next_tokens.index_copy_(0, rows, token_ids)
    num_computed.index_copy_(0, rows, seq_lens.masked_fill(rows == null_row, 0))
