"""Qwen3, dense (arXiv 2505.09388): each query and key head is normalised before it is turned."""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext
from legato.config.model import ModelConfig
from legato.kernels.rotary import normalise_and_rotate
from legato.layers.linear import Linear, PackedLinear
from legato.layers.norm import RMSNorm
from legato.models.causal_lm import CausalLM, attention_layer


class Qwen3Attention(nn.Module):
    """Grouped-query attention whose queries and keys are normalised over the head's dimensions."""

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.layer = attention_layer(config, index)
        parts = {"q_proj": config.q_size, "k_proj": config.kv_size, "v_proj": config.kv_size}
        self.qkv_proj = PackedLinear(config.hidden_size, parts, bias=config.qkv_bias, dtype=dtype, device=device)
        self.o_proj = Linear(config.q_size, config.hidden_size, bias=config.output_bias, dtype=dtype, device=device)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype, device=device)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype=dtype, device=device)
        self.head_counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)

    def forward(
        self, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, context: AttentionContext
    ) -> torch.Tensor:
        """Map ``hidden`` [num_tokens, hidden_size] to the same shape."""
        heads = self.qkv_proj(hidden).view(
            hidden.shape[0], -1, self.layer.head_dim
        )  # [num_tokens, all heads, head_dim]
        num_heads, num_kv_heads, _ = self.head_counts
        query_and_key, value = heads.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        query, key = normalise_and_rotate(
            query_and_key,
            (num_heads, num_kv_heads),
            self.q_norm.weight,
            self.k_norm.weight,
            self.q_norm.eps,
            cos,
            sin,
        )
        output: torch.Tensor = self.o_proj(context.attend(self.layer, query, key, value))
        return output


class Qwen3ForCausalLM(CausalLM):
    """The dense Qwen3 family."""

    attention = Qwen3Attention
