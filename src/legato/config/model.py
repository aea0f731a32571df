"""The shape of a model, in the field's names. Owns what a decoder-only transformer's config says; knows no file."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding.

    ``scaling`` is the ``rope_scaling`` mapping of a Hugging Face config without its type, which is ``kind``:
    ``default``, ``linear``, ``dynamic``, ``yarn`` or ``llama3``.
    """

    theta: float = 10_000.0
    kind: str = "default"
    scaling: dict[str, Any] = field(default_factory=dict)
    rotary_dim: int | None = None
    """Leading dimensions of each head that rotate; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What a decoder-only transformer looks like, complete: no field is derived later."""

    architecture: str
    """Class name in ``architectures`` of config.json, e.g. ``LlamaForCausalLM``."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_windows: tuple[int | None, ...] = ()
    """[num_layers] attention window in tokens per layer, None: unbounded."""
    num_mtp_modules: int = 0
    """Modules for multi-token prediction that the checkpoint holds behind the layers."""
    dtype: str = "float32"
    """Data type that the checkpoint names."""
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, the same as of all value heads."""
        return self.num_kv_heads * self.head_dim
