"""The draft head of EAGLE's first two generations (Li et al., arXiv 2401.15077, 2406.16858), in its chain form.

The token that follows a position and the target's final hidden state there are brought to one state, which a few
decoder layers take to the final hidden state of the next position; the target's own head reads it. The first layer has
no norm before its attention. Modules carry the names of the published checkpoints.
"""

import torch
from torch import nn

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.layers.embedding import Embedding
from legato.layers.linear import Linear
from legato.layers.rotary import RotaryEmbedding
from legato.loading.draft_head_config import DraftHeadConfig
from legato.models.causal_lm import DecoderLayer, number_layers
from legato.models.llama import LlamaAttention


class EagleHead(nn.Module):
    """The whole head; the embedding is the target's unless the checkpoint has one."""

    attention_layers: tuple[AttentionLayer, ...]

    def __init__(
        self,
        head: DraftHeadConfig,
        first_layer: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        own_embedding: bool = False,
    ) -> None:
        """``first_layer``: number of its first attention layer."""
        super().__init__()
        self.config = head
        config, size = head.model, head.model.hidden_size
        self.embed_tokens = Embedding(config.vocab_size, size, dtype=dtype, device=device) if own_embedding else None
        self.fc = Linear(2 * size, size, bias=head.fc_bias, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config, dtype=dtype, device=device)
        layers = [DecoderLayer(LlamaAttention, config, index, dtype, device) for index in range(config.num_layers)]
        layers[0].input_layernorm = None
        self.layers = nn.ModuleList(layers)
        self.attention_layers = number_layers(layers, first_layer)

    def forward(
        self, embedded: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, context: AttentionContext
    ) -> torch.Tensor:
        """Return the next hidden states; ``embedded`` and ``hidden`` are [num_tokens, hidden_size].

        ``embedded``: of the token after each of ``positions`` [num_tokens] int64.
        """
        residual: torch.Tensor = self.fc(torch.cat([embedded, hidden], dim=-1))
        rotation = self.rotary(positions)
        for layer in self.layers:
            residual = layer(residual, rotation, context)
        return residual
