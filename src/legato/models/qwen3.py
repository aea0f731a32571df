"""Qwen3, dense (arXiv 2505.09388): each query and key head is normalised before it is turned."""

from dataclasses import replace

import torch
from torch import nn

from legato.attention.protocol import AttentionContext
from legato.config.model import ModelConfig
from legato.kernels.rotary import HeadNorm, Rotation
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

    def forward(
        self, residual: torch.Tensor, norm: RMSNorm | None, rotation: Rotation, context: AttentionContext
    ) -> torch.Tensor:
        """Add to ``residual`` [num_tokens, hidden_size] in place the attention of its ``norm``; return it."""
        heads = self.qkv_proj(residual, norm).view(residual.shape[0], -1, self.layer.head_dim)
        head_norm = HeadNorm(query_weight=self.q_norm.weight, key_weight=self.k_norm.weight, eps=self.q_norm.eps)
        attended = context.attend(self.layer, heads, replace(rotation, norm=head_norm))
        return self.o_proj.add_to(residual, attended)


class Qwen3ForCausalLM(CausalLM):
    """The dense Qwen3 family."""

    attention = Qwen3Attention
