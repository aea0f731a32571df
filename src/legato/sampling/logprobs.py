"""Log-probabilities of chosen and best tokens: raw, before temperature, filters and penalties."""

from collections.abc import Sequence

import torch

from legato.flow.step_output import TokenLogprobs


def gather_logprobs(
    logits: torch.Tensor,  # [num_tokens, vocab] any float type
    token_ids: torch.Tensor,  # [num_tokens] int64
    top_n: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the chosen tokens' log-probabilities and ranks, and the ``top_n`` best tokens with theirs.

    ``chosen`` [num_tokens] float32, ``rank`` [num_tokens] int64 (1: best), ``top_ids`` [num_tokens, top_n] int64,
    ``top_logprobs`` [num_tokens, top_n] float32; best first.
    """
    logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
    chosen = logprobs.gather(1, token_ids.unsqueeze(1))
    rank = (logprobs > chosen).sum(dim=-1) + 1
    top_logprobs, top_ids = logprobs.topk(min(top_n, logits.shape[1]), dim=-1)
    return chosen.squeeze(1), rank, top_ids, top_logprobs


def token_logprobs(
    token_ids: torch.Tensor,  # [num_tokens] int64
    gathered: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    top_n: Sequence[int],
) -> tuple[TokenLogprobs, ...]:
    """Copy the result of :func:`gather_logprobs` to the host: one value per token, with its own ``top_n`` best."""
    chosen, rank, top_ids, top_logprobs = (tensor.tolist() for tensor in gathered)
    return tuple(
        TokenLogprobs(
            token_id=token_id,
            logprob=chosen[index],
            rank=rank[index],
            top_ids=tuple(top_ids[index][:n]),
            top_logprobs=tuple(top_logprobs[index][:n]),
        )
        for index, (token_id, n) in enumerate(zip(token_ids.tolist(), top_n, strict=True))
    )
