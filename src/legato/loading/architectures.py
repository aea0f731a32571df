"""The architectures that can be loaded, and what each implies without its config saying so. Pure.

:mod:`legato.models.registry` names the class that computes each of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from legato.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What is true of every model of a family."""

    gguf_name: str
    """``general.architecture`` of its GGUF files."""
    qkv_bias: bool | None = None
    """None: the config's ``attention_bias`` says it, for the output projection too."""
    qk_norm: bool = False
    window_from_layer: bool = False
    """The sliding window needs ``use_sliding_window`` and begins at layer ``max_window_layers``."""
    has_window: bool = False
    """``sliding_window`` of the config counts."""
    has_mlp_bias: bool = False
    """``mlp_bias`` of the config counts."""
    gguf_permutes_qk: bool = False
    """GGUF files hold query and key rows in the order of interleaved rotary embedding."""


ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture(gguf_name="llama", has_mlp_bias=True, gguf_permutes_qk=True),
    "MistralForCausalLM": Architecture(gguf_name="llama", qkv_bias=False, has_window=True, gguf_permutes_qk=True),
    "Qwen2ForCausalLM": Architecture(gguf_name="qwen2", qkv_bias=True, has_window=True, window_from_layer=True),
    "Qwen3ForCausalLM": Architecture(gguf_name="qwen3", qk_norm=True, has_window=True, window_from_layer=True),
}


def find_architecture(candidates: Iterable[str], file: str) -> str:
    """Return the first of ``candidates`` that can be loaded. Raises UnsupportedModelError, listing those that can."""
    names = list(candidates)
    for name in names:
        if name in ARCHITECTURES:
            return name
    raise unsupported("architecture", ", ".join(names) or "none named", file, options=", ".join(ARCHITECTURES))


def find_gguf_architecture(gguf_name: str, file: str) -> str:
    """Return the architecture of a GGUF file: the first with this name, which is general enough for all of them."""
    for name, architecture in ARCHITECTURES.items():
        if architecture.gguf_name == gguf_name:
            return name
    options = ", ".join(sorted({architecture.gguf_name for architecture in ARCHITECTURES.values()}))
    raise unsupported("architecture", gguf_name, file, options=options)


def unsupported(feature: str, found: object, file: str, *, options: str) -> UnsupportedModelError:
    """Return the error for a model, or a feature of it, that cannot be computed."""
    return UnsupportedModelError(
        f"this model's {feature} is not supported", {"file": file, "found": found, "options": options}
    )
