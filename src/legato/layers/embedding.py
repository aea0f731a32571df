"""Token ids -> vectors, and hidden states -> logits. Owns the matrix that a tied model uses for both."""

import torch
from torch import nn
from torch.nn import functional

from legato.kernels.linear import linear


class Embedding(nn.Module):
    """One row per token id."""

    def __init__(self, vocab_size: int, hidden_size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        weight = torch.empty(vocab_size, hidden_size, dtype=dtype, device=device)  # [vocab_size, hidden_size]
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Map ``token_ids`` [num_tokens] int64 to [num_tokens, hidden_size]."""
        return functional.embedding(token_ids, self.weight)


class LMHead(nn.Module):
    """Scores each token id by the product of its row with the hidden state."""

    def __init__(self, embedding: Embedding, *, tied: bool) -> None:
        super().__init__()
        weight = embedding.weight
        if not tied:  # empty_like would import a library of symbols, for a second, where a weight has no memory
            own = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
            weight = nn.Parameter(own, requires_grad=False)
        self.weight = weight

    def forward(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map ``hidden`` [num_rows, hidden_size] to logits [num_rows, vocab_size], written to ``out`` if given."""
        return linear(hidden, self.weight, out=out)
