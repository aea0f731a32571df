"""The mark that an attention call leaves in a traced graph. Owns one operator, and the way from a call to it and back.

The operator has a shape and no kernel: a graph is cut where it stands, and what runs there is the step's own attention
context. So nothing about a batch, its metadata or its cache can be part of what is compiled.
"""

from collections.abc import Mapping

import torch

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.kernels.rotary import HeadNorm, Rotation

_LIBRARY = torch.library.Library("legato", "FRAGMENT")
_LIBRARY.define(
    "attend(Tensor heads, Tensor cos, Tensor sin, Tensor? query_weight, Tensor? key_weight, float eps, int layer, "
    "int num_heads) -> Tensor"
)
ATTEND = torch.ops.legato.attend.default


def _attended(
    heads: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    query_weight: torch.Tensor | None,
    key_weight: torch.Tensor | None,
    eps: float,
    layer: int,
    num_heads: int,
) -> torch.Tensor:
    return heads.new_empty(heads.shape[0], num_heads * heads.shape[2])


torch.library.register_fake("legato::attend", _attended, lib=_LIBRARY)


class TracedAttention:
    """Implements :class:`~legato.attention.protocol.AttentionContext` for a model that is being traced."""

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Leave the mark; shapes as in the protocol."""
        norm = rotation.norm
        normed = (None, None, 0.0) if norm is None else (norm.query_weight, norm.key_weight, norm.eps)
        attended: torch.Tensor = torch.ops.legato.attend.default(
            heads, rotation.cos, rotation.sin, *normed, layer.index, layer.num_heads
        )
        return attended


def perform(
    context: AttentionContext,
    layers: Mapping[int, AttentionLayer],
    heads: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    query_weight: torch.Tensor | None,
    key_weight: torch.Tensor | None,
    eps: float,
    layer: int,
    num_heads: int,
) -> torch.Tensor:
    """Make in ``context`` the call that left the mark, given the mark's arguments."""
    norm = None
    if query_weight is not None and key_weight is not None:
        norm = HeadNorm(query_weight=query_weight, key_weight=key_weight, eps=eps)
    return context.attend(layers[layer], heads, Rotation(cos=cos, sin=sin, norm=norm))
