"""Logits -> token ids: pure device operations, safe to capture up to the FILTERED variant.

Owns how a token is chosen; the parameters are rows of :class:`~legato.sampling.state.SamplingState`. A row draws by
the Gumbel-max trick (Gumbel 1954; Maddison et al., arXiv 1411.0030): the best of ``logits / T + gumbel`` is a draw
from ``softmax(logits / T)``. Multiplied by T it is ``logits + T * gumbel``, which at T = 0 is plain argmax: greedy
rows need no case of their own, and no division.
"""

import torch

from legato.graphs.modes import SamplerVariant
from legato.kernels.argmax import argmax
from legato.kernels.log_exponential import log_exponential
from legato.sampling.processors import process
from legato.sampling.state import RowParams, SamplingState

_ELEMENTS_AT_ONCE = 1 << 22
"""Logits that are drawn from together: enough to fill a GPU, and what a sort needs beside them stays at 200 MB."""


def sample(
    logits: torch.Tensor,  # [num_reqs, vocab] any float type; not changed
    rows: torch.Tensor,  # [num_reqs] int64
    positions: torch.Tensor,  # [num_reqs] int64, of the token to be sampled
    state: SamplingState,
    variant: SamplerVariant,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the token chosen for each request, written to ``out`` if given.  # [num_reqs] int64

    ``variant`` must serve every real row (:func:`~legato.flow.sampler_variant.variant_of`); a larger one gives the
    same tokens. Probabilities are computed in float32. After GENERAL, pass the result to ``state.observe``.
    """
    if variant is SamplerVariant.GREEDY:
        return argmax(logits, out=out)
    num_reqs, vocab_size = logits.shape
    size = max(1, _ELEMENTS_AT_ONCE // vocab_size)
    tokens = [
        _sample_rows(
            logits[start : start + size], rows[start : start + size], positions[start : start + size], state, variant
        )
        for start in range(0, num_reqs, size)
    ]
    sampled = tokens[0] if len(tokens) == 1 else torch.cat(tokens)
    return sampled if out is None else out.copy_(sampled)


def _sample_rows(
    logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, state: SamplingState, variant: SamplerVariant
) -> torch.Tensor:
    """Do what :func:`sample` says for so few rows that a dozen tensors of their logits' size do not matter."""
    logits = logits.to(torch.float32)
    params = state.gather(rows)
    if variant is SamplerVariant.GENERAL:
        logits = process(logits, rows, positions, state, params)
    if variant is SamplerVariant.TEMPERATURE:
        noise = log_exponential(params.seed, positions, state.hashes)
        return argmax(_perturbed(logits, noise, params.temperature))
    return _sample_filtered(logits, positions, state.hashes, params)


def _perturbed(logits: torch.Tensor, log_exponentials: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Return ``logits + temperature * gumbel`` in the noise's memory.  # [num_reqs, vocab] float32"""
    return log_exponentials.mul_(-temperature).add_(logits)


def _sample_filtered(
    logits: torch.Tensor, positions: torch.Tensor, hashes: torch.Tensor, params: RowParams
) -> torch.Tensor:
    """Draw among the tokens that pass top-k, then top-p, then min-p, after one sort.  # [num_reqs] int64"""
    # Stable, so that equal logits keep the order of token ids and greedy rows agree with argmax.
    ordered, token_ids = logits.sort(dim=-1, descending=True, stable=True)
    removed = ~kept(ordered, params)
    # Noise belongs to a token, not to its rank: an unfiltered row draws what it draws in the TEMPERATURE variant.
    noise = log_exponential(params.seed, positions, hashes[token_ids])
    scores = _perturbed(ordered, noise, params.temperature).masked_fill_(removed, float("-inf"))
    return token_ids.gather(1, argmax(scores)[:, None]).squeeze(1)


def kept(ordered: torch.Tensor, params: RowParams) -> torch.Tensor:
    """Return which of ``ordered`` [num_reqs, vocab] float32, best first, pass the filters.  # [num_reqs, vocab] bool

    Top-k keeps the k best; top-p (arXiv 1904.09751), of what is left, the smallest set with at least this
    probability; min-p (arXiv 2407.01082) those with this share of the best one's. The best token passes all.
    """
    best = ordered[:, :1]
    temperature = torch.where(params.temperature > 0, params.temperature, 1.0)
    ranks = torch.arange(ordered.shape[1], device=ordered.device)
    in_top_k = ranks < params.top_k
    # Relative to the best before the division: a tiny temperature then gives -inf, never inf - inf.
    scaled = ((ordered - best) / temperature).masked_fill_(~in_top_k, float("-inf"))
    probabilities = scaled.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    return in_top_k & (before < params.top_p) & (probabilities >= params.min_p * probabilities[:, :1])
