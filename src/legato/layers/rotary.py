"""Rotary position embedding (arXiv 2104.09864). Owns the table of cosines and sines; a kernel turns the heads.

A head's dimension ``i`` is paired with ``i + rotary_dim / 2``. The table is made once, in float32, for every position
the model has.
"""

import torch
from torch import nn

from legato.config.model import ModelConfig
from legato.kernels.rotary import Rotation
from legato.layers.rotary_frequencies import rotary_frequencies


class RotaryEmbedding(nn.Module):
    """Looks up a step's cosines and sines, once for all layers."""

    table: torch.Tensor  # [max_position_embeddings, 2, rotary_dim]

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        frequencies, scale = rotary_frequencies(config.rope, config.rope.rotary_dim or config.head_dim)
        angles = torch.outer(torch.arange(config.max_position_embeddings, dtype=torch.float32), frequencies)
        cos, sin = angles.cos() * scale, angles.sin() * scale  # [max_position_embeddings, rotary_dim / 2] float32
        # The first half of a head loses sin times the second half, the second half gains it: the sign is in the table.
        table = torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)], dim=1)
        self.register_buffer("table", table.to(dtype).to(device), persistent=False)

    def forward(self, positions: torch.Tensor) -> Rotation:
        """Return the rotation of heads at ``positions`` [num_tokens] int64, without a norm."""
        return rotation_by(self.table.index_select(0, positions))


def rotation_by(angles: torch.Tensor) -> Rotation:
    """Return the rotation by rows of a table, [num_tokens, 2, rotary_dim], without a norm."""
    cos, sin = angles.split(1, dim=1)
    return Rotation(cos=cos, sin=sin)
