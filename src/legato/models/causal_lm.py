"""What all decoder-only models share: embedding, pre-norm residual layers, final norm, logits. Owns no attention.

Modules carry the names that Hugging Face checkpoints give them, so that a parameter's path is its name there.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import nn

from legato.attention.protocol import AttentionContext, AttentionLayer
from legato.config.model import ModelConfig
from legato.kernels.rotary import Rotation
from legato.kernels.token_lookups import token_lookups
from legato.kvcache.spec import FullAttentionSpec, LayerGroup, SlidingWindowSpec
from legato.layers.embedding import Embedding, LMHead
from legato.layers.mlp import GatedMLP
from legato.layers.norm import RMSNorm
from legato.layers.rotary import RotaryEmbedding, rotation_by


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxiliaryStates:
    """Where a pass leaves copies of the residual as it goes into some layers, before any norm, for who reads it."""

    layers: tuple[int, ...]
    out: torch.Tensor  # [num_tokens, len(layers) * hidden_size], side by side in the order of ``layers``

    def keep(self, layer: int, residual: torch.Tensor) -> None:
        """Copy ``residual`` [num_tokens, hidden_size], the input of ``layer``, to its place if it has one."""
        if layer in self.layers:
            size = residual.shape[1]
            self.out.narrow(1, self.layers.index(layer) * size, size).copy_(residual)


class Attention(Protocol):
    """A family's attention block: an ``nn.Module`` that is built and called like this."""

    layer: AttentionLayer

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None: ...

    def __call__(
        self, residual: torch.Tensor, norm: RMSNorm | None, rotation: Rotation, context: AttentionContext
    ) -> torch.Tensor:
        """Add to ``residual`` [num_tokens, hidden_size] in place the attention of its ``norm``; return it."""
        ...


class DecoderLayer(nn.Module):
    """Attention, then the feed-forward layer, each behind a norm and added to its input.

    A block is given its norm: a product of few rows normalises its inputs in passing, and adds its outputs where they
    belong.
    """

    input_layernorm: RMSNorm | None
    """None in some drafters: the layer attends to its input as it is."""

    def __init__(
        self, attention: type[Attention], config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.self_attn = attention(config, index, dtype, device)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.mlp = GatedMLP(config, dtype=dtype, device=device)

    def forward(self, residual: torch.Tensor, rotation: Rotation, context: AttentionContext) -> torch.Tensor:
        """Add both blocks to ``residual`` [num_tokens, hidden_size] in place; return it."""
        residual = self.self_attn(residual, self.input_layernorm, rotation, context)
        summed: torch.Tensor = self.mlp(residual, self.post_attention_layernorm)
        return summed


class Decoder(nn.Module):
    """Token ids and positions -> hidden states."""

    def __init__(
        self, attention: type[Attention], config: ModelConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, device=device)
        self.rotary = RotaryEmbedding(config, dtype=dtype, device=device)
        self.layers = nn.ModuleList(
            DecoderLayer(attention, config, index, dtype, device) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype, device=device)
        self.attention_layers = tuple(attention_layer(config, index) for index in range(config.num_layers))

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
        auxiliary: AuxiliaryStates | None = None,
    ) -> torch.Tensor:
        """Map ``input_ids`` and ``positions`` [num_tokens] int64 to [num_tokens, hidden_size]."""
        residual, angles = token_lookups(input_ids, self.embed_tokens.weight, positions, self.rotary.table)
        rotation = rotation_by(angles)
        for index, layer in enumerate(self.layers):
            if auxiliary is not None:
                auxiliary.keep(index, residual)
            residual = layer(residual, rotation, context)
        normed: torch.Tensor = self.norm(residual)
        return normed


class CausalLM(nn.Module):
    """A language model. A family names its attention; the rest is here.

    Tokens of all requests come as one flat axis: what belongs together is the attention context's business.
    """

    attention: ClassVar[type[Attention]]

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(self.attention, config, dtype, device)
        self.lm_head = LMHead(self.model.embed_tokens, tied=config.tie_word_embeddings)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        context: AttentionContext,
        auxiliary: AuxiliaryStates | None = None,
    ) -> torch.Tensor:
        """Map ``input_ids`` and ``positions`` [num_tokens] int64 to hidden states [num_tokens, hidden_size].

        ``auxiliary``: where inner states are left besides; None: nowhere.
        """
        hidden: torch.Tensor = self.model(input_ids, positions, context, auxiliary)
        return hidden

    def compute_logits(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map ``hidden`` [num_rows, hidden_size] to [num_rows, vocab_size], written to ``out`` if given."""
        logits: torch.Tensor = self.lm_head(hidden, out)
        return logits

    @property
    def attention_layers(self) -> tuple[AttentionLayer, ...]:
        """The attention layers, in order."""
        return self.model.attention_layers

    def number_layers_from(self, first: int) -> None:
        """Give the attention layers the numbers from ``first`` on, behind those of another model in one cache."""
        self.model.attention_layers = number_layers(self.model.layers, first)

    @contextmanager
    def different_layers_alone(self) -> Iterator[None]:
        """Leave out, within, layers that launch the same as an earlier one: all but the first of each window."""
        every, decoder = self.model.layers, self.model
        windows = [layer.window for layer in self.attention_layers]
        decoder.layers = nn.ModuleList(every[windows.index(window)] for window in dict.fromkeys(windows))
        try:
            yield
        finally:
            decoder.layers = every

    @classmethod
    def layer_groups(cls, config: ModelConfig) -> tuple[LayerGroup, ...]:
        """Return the layers by what they keep: those without a window, then those of each window size."""
        windows = config.sliding_windows or (None,) * config.num_layers
        return tuple(
            LayerGroup(
                name="full" if window is None else f"window_{window}",
                layers=tuple(index for index, own in enumerate(windows) if own == window),
                spec=_spec(config, window),
            )
            for window in sorted(set(windows), key=lambda window: window or 0)
        )


def attention_layer(config: ModelConfig, index: int, *, number: int | None = None) -> AttentionLayer:
    """Return layer ``index`` as ``config`` has it, with scores scaled by the root of the head size.

    ``number``: what it is known by where several models share a cache; None: ``index``.
    """
    return AttentionLayer(
        index=index if number is None else number,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=config.head_dim**-0.5,
        window=config.sliding_windows[index] if config.sliding_windows else None,
    )


def number_layers(layers: Iterable[nn.Module], first: int) -> tuple[AttentionLayer, ...]:
    """Give the attention of decoder ``layers`` the numbers from ``first`` on; return it."""
    numbered = []
    for index, layer in enumerate(layers, start=first):
        assert isinstance(layer, DecoderLayer)
        layer.self_attn.layer = replace(layer.self_attn.layer, index=index)
        numbered.append(layer.self_attn.layer)
    return tuple(numbered)


def _spec(config: ModelConfig, window: int | None) -> FullAttentionSpec:
    if window is None:
        return FullAttentionSpec(num_kv_heads=config.num_kv_heads, head_dim=config.head_dim)
    return SlidingWindowSpec(num_kv_heads=config.num_kv_heads, head_dim=config.head_dim, window=window)
