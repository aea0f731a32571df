"""What a model looks up for each token: the embedding of its id, and the angles of its position."""

import torch
from torch.nn import functional


def token_lookups(
    token_ids: torch.Tensor, embedding: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of ``embedding`` [num_tokens, size] and rows of ``angles`` [num_tokens, 2, rotary_dim].

    ``token_ids`` and ``positions`` [num_tokens] int64; ``embedding`` [vocab_size, size] and ``angles`` [num_positions,
    2, rotary_dim], both contiguous. On a GPU all of it is one launch.
    """
    if token_ids.is_cuda:
        from legato.kernels import token_lookups_triton

        return token_lookups_triton.token_lookups(token_ids, embedding, positions, angles)
    return token_lookups_reference(token_ids, embedding, positions, angles)


def token_lookups_reference(
    token_ids: torch.Tensor, embedding: torch.Tensor, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute :func:`token_lookups` with torch alone."""
    return functional.embedding(token_ids, embedding), angles.index_select(0, positions)
