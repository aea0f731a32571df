"""A token's embedding and a hidden state side by side, each behind its own norm: what a draft head's layer reads."""

import torch
from torch.nn import functional

from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm_reference


def paired_norms(
    token_ids: torch.Tensor, embedding: torch.Tensor, token_norm: Norm, hidden: torch.Tensor, hidden_norm: Norm
) -> torch.Tensor:
    """Return ``token_norm`` of each token's row and ``hidden_norm`` of its hidden state, [num_tokens, 2 * size].

    ``token_ids`` [num_tokens] int64; ``embedding`` [vocab_size, size], contiguous; ``hidden`` [num_tokens, size]. Means
    are taken in float32. On a GPU all of it is one launch.
    """
    if hidden.is_cuda:
        from legato.kernels import paired_norms_triton

        return paired_norms_triton.paired_norms(token_ids, embedding, token_norm, hidden, hidden_norm)
    return paired_norms_reference(token_ids, embedding, token_norm, hidden, hidden_norm)


def paired_norms_reference(
    token_ids: torch.Tensor, embedding: torch.Tensor, token_norm: Norm, hidden: torch.Tensor, hidden_norm: Norm
) -> torch.Tensor:
    """Compute :func:`paired_norms` with torch alone."""
    embedded = rms_norm_reference(functional.embedding(token_ids, embedding), *token_norm)
    return torch.cat([embedded, rms_norm_reference(hidden, *hidden_norm)], dim=-1)
