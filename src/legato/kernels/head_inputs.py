"""What a draft head's layer reads: a token's embedding and a hidden state side by side, and its position's angles."""

from typing import NamedTuple

import torch
from torch.nn import functional

from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm_reference


class Normed(NamedTuple):
    """Vectors, and the norm that they are read behind."""

    vectors: torch.Tensor  # [num_vectors, size]
    norm: Norm


def head_inputs(
    token_ids: torch.Tensor, embedding: Normed, hidden: Normed, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return normed rows of ``embedding`` beside normed ``hidden`` [num_tokens, 2 * size], and rows of ``angles``.

    ``token_ids`` and ``positions`` [num_tokens] int64; ``embedding`` has [vocab_size, size], contiguous, and ``hidden``
    [num_tokens, size]; ``angles`` [num_positions, 2, rotary_dim] gives [num_tokens, 2, rotary_dim]. Means are taken in
    float32. On a GPU all of it is one launch.
    """
    if token_ids.is_cuda:
        from legato.kernels import head_inputs_triton

        return head_inputs_triton.head_inputs(token_ids, embedding, hidden, positions, angles)
    return head_inputs_reference(token_ids, embedding, hidden, positions, angles)


def head_inputs_reference(
    token_ids: torch.Tensor, embedding: Normed, hidden: Normed, positions: torch.Tensor, angles: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute :func:`head_inputs` with torch alone."""
    embedded = rms_norm_reference(functional.embedding(token_ids, embedding.vectors), *embedding.norm)
    paired = torch.cat([embedded, rms_norm_reference(hidden.vectors, *hidden.norm)], dim=-1)
    return paired, angles.index_select(0, positions)
