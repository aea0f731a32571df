"""EAGLE-3's draft head (Li et al., arXiv 2503.01840): one decoder layer over inner states of the target.

The token that follows a position and the position's hidden state go into the layer side by side, each behind a norm of
its own; the hidden state is the residual. Three inner states of the target make the first hidden state, and the
layer's own output makes each one after it. Modules carry the names of the published checkpoints.
"""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.kernels.argmax import argmax
from legato.kernels.head_inputs import Normed, head_inputs
from legato.kernels.rotary import Rotation
from legato.layers.embedding import Embedding
from legato.layers.linear import Linear, PackedLinear
from legato.layers.mlp import GatedMLP
from legato.layers.norm import RMSNorm
from legato.layers.rotary import RotaryEmbedding, rotation_by
from legato.loading.draft_head_config import DraftHeadConfig
from legato.models.causal_lm import attention_layer

NUM_AUXILIARY_LAYERS = 3


class Eagle3Attention(nn.Module):
    """Grouped-query attention whose inputs are twice as wide as the hidden state."""

    def __init__(self, head: DraftHeadConfig, layer: AttentionLayer, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        config = head.model
        self.layer = layer
        parts = {"q_proj": config.q_size, "k_proj": config.kv_size, "v_proj": config.kv_size}
        self.qkv_proj = PackedLinear(2 * config.hidden_size, parts, bias=config.qkv_bias, dtype=dtype, device=device)
        self.o_proj = Linear(config.q_size, config.hidden_size, bias=config.output_bias, dtype=dtype, device=device)

    def forward(
        self, residual: torch.Tensor, inputs: torch.Tensor, rotation: Rotation, context: AttentionContext
    ) -> torch.Tensor:
        """Add to ``residual`` in place the attention of ``inputs`` [num_tokens, 2 * hidden_size]; return it."""
        heads = self.qkv_proj(inputs).view(inputs.shape[0], -1, self.layer.head_dim)
        return self.o_proj.add_to(residual, context.attend(self.layer, heads, rotation))


class Eagle3Layer(nn.Module):
    """Attention to token and hidden state, then the feed-forward layer."""

    def __init__(self, head: DraftHeadConfig, layer: AttentionLayer, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        size, eps = head.model.hidden_size, head.model.rms_norm_eps
        self.input_layernorm = RMSNorm(size, eps, dtype=dtype, device=device)
        self.hidden_norm = RMSNorm(size, eps, dtype=dtype, device=device)
        self.self_attn = Eagle3Attention(head, layer, dtype, device)
        self.post_attention_layernorm = RMSNorm(size, eps, dtype=dtype, device=device)
        self.mlp = GatedMLP(head.model, dtype=dtype, device=device)

    def forward(
        self,
        embedding: Embedding,
        token_ids: torch.Tensor,
        residual: torch.Tensor,
        positions: torch.Tensor,
        rotary: RotaryEmbedding,
        context: AttentionContext,
    ) -> torch.Tensor:
        """Add both blocks to ``residual`` [num_tokens, hidden_size] in place; return it."""
        inputs, angles = head_inputs(
            token_ids,
            Normed(embedding.weight, self.input_layernorm.terms),
            Normed(residual, self.hidden_norm.terms),
            positions,
            rotary.table,
        )
        residual = self.self_attn(residual, inputs, rotation_by(angles), context)
        summed: torch.Tensor = self.mlp(residual, self.post_attention_layernorm)
        return summed


class Eagle3Head(nn.Module):
    """The whole head; the embedding is the target's unless the checkpoint has one."""

    d2t: torch.Tensor  # [draft_vocab_size] int64: target id minus draft id
    target_ids: torch.Tensor  # [draft_vocab_size] int64: the target id of each draft id

    def __init__(
        self,
        head: DraftHeadConfig,
        layer_index: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        own_embedding: bool = False,
    ) -> None:
        """``layer_index``: number of its attention layer. Until a checkpoint says more, drafts spread evenly."""
        super().__init__()
        self.config = head
        config, inner = head.model, NUM_AUXILIARY_LAYERS * head.target_hidden_size
        size = config.hidden_size
        self.attention_layer = attention_layer(config, 0, number=layer_index)
        self.embed_tokens = Embedding(config.vocab_size, size, dtype=dtype, device=device) if own_embedding else None
        self.fc = Linear(inner, size, bias=head.fc_bias, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config, dtype=dtype, device=device)
        self.midlayer = Eagle3Layer(head, self.attention_layer, dtype, device)
        self.norm = RMSNorm(size, config.rms_norm_eps, dtype=dtype, device=device)
        self.lm_head = Linear(size, head.draft_vocab_size, bias=False, dtype=dtype, device=device)
        draft_ids = torch.arange(head.draft_vocab_size, device=device)
        target_ids = draft_ids * config.vocab_size // head.draft_vocab_size
        self.register_buffer("d2t", target_ids - draft_ids)
        self.register_buffer("target_ids", target_ids, persistent=False)

    def combine(self, auxiliary: torch.Tensor) -> torch.Tensor:
        """Map inner states of the target [num_tokens, 3 * target_hidden_size] to hidden states of the head."""
        hidden: torch.Tensor = self.fc(auxiliary)
        return hidden

    def forward(
        self,
        embedding: Embedding,
        next_ids: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
    ) -> torch.Tensor:
        """Return the next hidden states, written over ``hidden`` [num_tokens, hidden_size].

        ``embedding``: the head's own where it has one; ``next_ids`` [num_tokens] int64: of the token after each of
        ``positions`` [num_tokens] int64.
        """
        following: torch.Tensor = self.midlayer(embedding, next_ids, hidden, positions, self.rotary, context)
        return following

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map ``hidden`` [num_rows, hidden_size] to [num_rows, draft_vocab_size]."""
        logits: torch.Tensor = self.lm_head(hidden, self.norm)
        return logits

    def draft(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the likeliest token of each row in the target's vocabulary, [num_rows] int64, in ``out`` if given."""
        return argmax(self.compute_logits(hidden), self.target_ids, out=out)

    def follow_offsets(self) -> None:
        """Take the target ids from ``d2t``, which has been written."""
        draft_ids = torch.arange(self.d2t.shape[0], device=self.d2t.device)
        self.target_ids.copy_(draft_ids + self.d2t)
