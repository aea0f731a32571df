"""Attention without a cache of blocks, in float64: what every paged backend must equal."""

import torch

from legato.attention.protocol import AttentionLayer
from legato.kernels.rotary import Rotation, rotated_parts
from legato.models.causal_lm import CausalLM


def dense_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, scale: float, window: int | None
) -> torch.Tensor:
    """Attend the last tokens of one sequence, causally, one head at a time.

    ``query`` [query_len, num_heads, head_dim]; ``keys`` and ``values`` [seq_len, num_kv_heads, head_dim]; returns
    [query_len, num_heads, head_dim] float64.
    """
    query_len, num_heads, _ = query.shape
    seq_len, num_kv_heads, _ = keys.shape
    position = torch.arange(seq_len - query_len, seq_len)[:, None]  # of each query
    distance = position - torch.arange(seq_len)
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    out = torch.empty(query.shape, dtype=torch.float64)
    for head in range(num_heads):
        shared = head // (num_heads // num_kv_heads)
        scores = query[:, head].double() @ keys[:, shared].double().T * scale
        out[:, head] = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values[:, shared].double()
    return out


class DenseContext:
    """An attention context of one sequence that is computed in one pass."""

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        query, key, value = rotated_parts(heads, layer.num_kv_heads, rotation)
        out = dense_attention(query, key, value, scale=layer.scale, window=layer.window)
        return out.to(query.dtype).flatten(1, 2)


@torch.inference_mode()
def dense_logprobs(model: CausalLM, token_ids: list[int]) -> torch.Tensor:
    """Return the log-probabilities after each token of one sequence.  # [num_tokens, vocab] float32"""
    hidden = model(torch.tensor(token_ids), torch.arange(len(token_ids)), DenseContext())
    return model.compute_logits(hidden).log_softmax(-1)
