"""What each group of layers keeps per token or per request. Owns sizes only; knows no tensor and no scheduler.

A model may mix groups. All groups of a model share one block table: block ``i`` of a request holds tokens
``[i * block_size, (i + 1) * block_size)`` in every layer, each layer in storage of its own.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSpec(ABC):
    """State that one layer keeps for a sequence."""

    @abstractmethod
    def bytes_per_block(self, block_size: int, element_bytes: int) -> int:
        """Return the bytes that one block takes in one layer."""

    def blocks_needed(self, num_tokens: int, block_size: int) -> int:
        """Return the blocks a sequence of ``num_tokens`` occupies."""
        return -(-num_tokens // block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttentionSpec(KVSpec):
    """Keys and values of every token."""

    num_kv_heads: int
    head_dim: int

    def bytes_per_block(self, block_size: int, element_bytes: int) -> int:
        """Return the bytes of ``block_size`` keys and values."""
        return 2 * block_size * self.num_kv_heads * self.head_dim * element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowSpec(FullAttentionSpec):
    """Keys and values of which only the last ``window`` tokens are read."""

    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MLASpec(KVSpec):
    """Multi-head latent attention: one latent vector and one rotary key per token (arXiv 2405.04434)."""

    latent_dim: int
    rope_dim: int

    def bytes_per_block(self, block_size: int, element_bytes: int) -> int:
        """Return the bytes of ``block_size`` latent vectors."""
        return block_size * (self.latent_dim + self.rope_dim) * element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSpec(KVSpec):
    """A state of fixed size per sequence, whatever its length."""

    state_elements: int

    def bytes_per_block(self, block_size: int, element_bytes: int) -> int:
        """Return the bytes of one state."""
        return self.state_elements * element_bytes

    def blocks_needed(self, num_tokens: int, block_size: int) -> int:
        """Return 1: the state does not grow."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep state of the same kind."""

    name: str
    layers: tuple[int, ...]
    spec: KVSpec
