"""Llama 2 and 3 (arXiv 2302.13971, 2407.21783), SmolLM2, and Mistral (arXiv 2310.06825).

Grouped-query attention over rotary-embedded heads. Mistral differs by a sliding window, which the configuration gives
each layer.
"""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext
from legato.config.model import ModelConfig
from legato.kernels.rotary import rotate
from legato.layers.linear import Linear, PackedLinear
from legato.models.causal_lm import CausalLM, attention_layer


class LlamaAttention(nn.Module):
    """Queries, keys and values from one product; queries and keys turned together."""

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layer = attention_layer(config, index)
        parts = {"q_proj": config.q_size, "k_proj": config.kv_size, "v_proj": config.kv_size}
        self.qkv_proj = PackedLinear(config.hidden_size, parts, bias=config.qkv_bias, dtype=dtype, device=device)
        self.o_proj = Linear(config.q_size, config.hidden_size, bias=config.output_bias, dtype=dtype, device=device)
        self.head_counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)

    def forward(
        self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, context: AttentionContext
    ) -> torch.Tensor:
        """Map ``hidden`` [num_tokens, hidden_size] to the same shape."""
        num_heads, num_kv_heads, _ = self.head_counts
        heads = self.qkv_proj(hidden).view(
            hidden.shape[0], -1, self.layer.head_dim
        )  # [num_tokens, all heads, head_dim]
        query_and_key, value = heads.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        query, key = rotate(query_and_key, cos, sin).split((num_heads, num_kv_heads), dim=1)
        output: torch.Tensor = self.o_proj(context.attend(self.layer, query, key, value))
        return output


class LlamaForCausalLM(CausalLM):
    """The Llama family, and what shares its architecture."""

    attention = LlamaAttention
