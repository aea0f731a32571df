"""Changes to logits before tokens are drawn: what the GENERAL variant adds. Each is one pure function of tensors.

The order is that of the field: penalties on what came before, then bias, then what is forbidden outright.
"""

import torch

from legato.sampling.state import RowParams, SamplingState


def process(
    logits: torch.Tensor,  # [num_reqs, vocab] float32
    rows: torch.Tensor,  # [num_reqs] int64
    positions: torch.Tensor,  # [num_reqs] int64, of the token to be sampled
    state: SamplingState,
    params: RowParams,
) -> torch.Tensor:
    """Return the logits [num_reqs, vocab] that every request's own parameters make of ``logits``."""
    history = state.history
    if history.output_counts is not None and history.in_prompt is not None:
        counts = history.output_counts.index_select(0, rows)
        seen = history.in_prompt.index_select(0, rows) | (counts > 0)
        logits = penalize_repetition(logits, seen, params.repetition_penalty)
        logits = penalize_output(logits, counts, params.presence_penalty, params.frequency_penalty)
    if history.bias is not None:
        logits = logits + history.bias.index_select(0, rows)
    if history.stop_mask is not None and history.min_tokens is not None:
        num_output_tokens = positions.unsqueeze(1) - params.prompt_len
        too_early = num_output_tokens < history.min_tokens.index_select(0, rows).unsqueeze(1)
        logits = forbid_stop_tokens(logits, history.stop_mask.index_select(0, rows), too_early)
    if history.bad_words is not None:
        logits = history.bad_words.forbid(logits, rows)
    return logits


def penalize_repetition(logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Divide positive and multiply negative logits of ``seen`` tokens by ``penalty`` (CTRL, arXiv 1909.05858).

    ``logits`` [num_reqs, vocab] float32, ``seen`` [num_reqs, vocab] bool, ``penalty`` [num_reqs, 1].
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def penalize_output(
    logits: torch.Tensor, counts: torch.Tensor, presence: torch.Tensor, frequency: torch.Tensor
) -> torch.Tensor:
    """Subtract ``presence`` once, and ``frequency`` per occurrence, from tokens of the output.

    ``logits`` [num_reqs, vocab] float32, ``counts`` [num_reqs, vocab] int32, the penalties [num_reqs, 1]; the formula
    of OpenAI's API reference.
    """
    return logits - presence * (counts > 0) - frequency * counts


def forbid_stop_tokens(logits: torch.Tensor, stop_mask: torch.Tensor, too_early: torch.Tensor) -> torch.Tensor:
    """Return logits [num_reqs, vocab] with -inf for stop tokens of requests below their ``min_tokens``.

    ``stop_mask`` [num_reqs, vocab] bool, ``too_early`` [num_reqs, 1] bool.
    """
    return logits.masked_fill(stop_mask & too_early, float("-inf"))
