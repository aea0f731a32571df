"""An attention context without a cache of blocks: plain causal attention over one sequence, in float32 math."""

import torch

from legato.attention.protocol import AttentionLayer
from legato.kernels.rotary import Rotation, rotated_parts


class DenseContext:
    """Keeps every key and value of one sequence; later calls continue it."""

    def __init__(self) -> None:
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        num_tokens = heads.shape[0]
        query, key, value = rotated_parts(heads, layer.num_kv_heads, rotation)
        assert query.shape == (num_tokens, layer.num_heads, layer.head_dim)
        assert key.shape == value.shape == (num_tokens, layer.num_kv_heads, layer.head_dim)
        if layer.index in self.keys:
            key = torch.cat([self.keys[layer.index], key])
            value = torch.cat([self.values[layer.index], value])
        self.keys[layer.index], self.values[layer.index] = key, value
        shared_by = layer.num_heads // layer.num_kv_heads
        key, value = key.repeat_interleave(shared_by, 1), value.repeat_interleave(shared_by, 1)
        distance = torch.arange(key.shape[0] - num_tokens, key.shape[0])[:, None] - torch.arange(key.shape[0])
        hidden = (distance < 0) | (distance >= (layer.window or key.shape[0]))
        scores = torch.einsum("qhd,khd->hqk", query, key) * layer.scale
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, value).reshape(num_tokens, -1)


@torch.inference_mode()
def logits_of(model, token_ids: list[int]) -> torch.Tensor:
    """[num_tokens, vocab_size] logits of one sequence, in one pass."""
    hidden = model(torch.tensor(token_ids), torch.arange(len(token_ids)), DenseContext())
    return model.compute_logits(hidden)
