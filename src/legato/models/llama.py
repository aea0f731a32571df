"""Llama 2 and 3 (arXiv 2302.13971, 2407.21783), SmolLM2, and Mistral (arXiv 2310.06825).

Grouped-query attention over rotary-embedded heads. Mistral differs by a sliding window, which the configuration gives
each layer.
"""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext
from legato.config.model import ModelConfig
from legato.kernels.rotary import Rotation
from legato.layers.linear import Linear, PackedLinear
from legato.layers.norm import RMSNorm
from legato.models.causal_lm import CausalLM, attention_layer


class LlamaAttention(nn.Module):
    """Queries, keys and values from one product, handed on as it gives them."""

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layer = attention_layer(config, index)
        parts = {"q_proj": config.q_size, "k_proj": config.kv_size, "v_proj": config.kv_size}
        self.qkv_proj = PackedLinear(config.hidden_size, parts, bias=config.qkv_bias, dtype=dtype, device=device)
        self.o_proj = Linear(config.q_size, config.hidden_size, bias=config.output_bias, dtype=dtype, device=device)

    def forward(
        self, residual: torch.Tensor, norm: RMSNorm | None, rotation: Rotation, context: AttentionContext
    ) -> torch.Tensor:
        """Add to ``residual`` [num_tokens, hidden_size] in place the attention of its ``norm``; return it."""
        heads = self.qkv_proj(residual, norm).view(residual.shape[0], -1, self.layer.head_dim)
        return self.o_proj.add_to(residual, context.attend(self.layer, heads, rotation))


class LlamaForCausalLM(CausalLM):
    """The Llama family, and what shares its architecture."""

    attention = LlamaAttention
