"""config.json of a draft head -> DraftHeadConfig. Owns the fields that heads have beside those of a language model.

A head is a few decoder layers over a target's hidden states, with a folder of its own. Its file names the layers as a
Llama's does; beside them stand the reduced vocabulary that it drafts from, and what of the target it reads.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legato.config.model import ModelConfig
from legato.errors import UnsupportedModelError
from legato.loading.config_fields import Fields, lie
from legato.loading.hf_config import parse_hf_config, read_json

_LAYERS_OF = "LlamaForCausalLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHeadConfig:
    """What a draft head looks like, and the target that it was made for."""

    file: str
    model: ModelConfig
    """Of its own layers; ``vocab_size`` is the target's."""
    draft_vocab_size: int
    """Tokens that it can draft."""
    target_hidden_size: int
    auxiliary_layers: tuple[int, ...] | None
    """Target layers whose inputs it reads; None: where its kind has them unsaid."""
    fc_bias: bool


def read_draft_head_config(folder: Path, architectures: tuple[str, ...]) -> DraftHeadConfig:
    """Return what ``folder``/config.json describes.

    Raises UnsupportedModelError where it is none of ``architectures``, and ModelError as for a language model.
    """
    return parse_draft_head_config(read_json(folder / "config.json"), str(folder / "config.json"), architectures)


def parse_draft_head_config(values: dict[str, Any], file: str, architectures: tuple[str, ...]) -> DraftHeadConfig:
    """Return the head that ``values`` describe; errors as of :func:`read_draft_head_config`."""
    named = values.get("architectures") or []
    known = [name for name in named if name in architectures] if isinstance(named, list) else []
    if not known:
        found = ", ".join(map(str, named)) if isinstance(named, list) and named else repr(named)
        raise UnsupportedModelError(
            "this model is no draft head of the kind asked for",
            {"file": file, "found": f"architecture {found}", "expected": " | ".join(architectures)},
        )
    fields = Fields(values, file)
    model = parse_hf_config({**values, "architectures": [_LAYERS_OF]}, file)
    model = replace(model, architecture=known[0], tie_word_embeddings=False)
    eagle = fields.mapping("eagle_config")
    if values.get("norm_before_residual") or eagle.get("norm_before_residual"):
        raise UnsupportedModelError(
            "this draft head's layer is not supported",
            {"file": file, "found": "norm_before_residual", "expected": "a residual that is the hidden state itself"},
        )
    draft_vocab_size = fields.integer("draft_vocab_size", model.vocab_size)
    if draft_vocab_size > model.vocab_size:
        raise lie(file, "draft_vocab_size", f"at most vocab_size ({model.vocab_size})", draft_vocab_size)
    return DraftHeadConfig(
        file=file,
        model=model,
        draft_vocab_size=draft_vocab_size,
        target_hidden_size=fields.integer("target_hidden_size", model.hidden_size),
        auxiliary_layers=_auxiliary_layers({**eagle, **values}, file),
        fc_bias=fields.flag("eagle_fc_bias", fields.flag("bias", False)),
    )


def _auxiliary_layers(values: dict[str, Any], file: str) -> tuple[int, ...] | None:
    field = "eagle_aux_hidden_state_layer_ids"
    layers = values.get(field)
    if not layers:
        return None
    if not isinstance(layers, list) or any(not isinstance(layer, int) or isinstance(layer, bool) for layer in layers):
        raise lie(file, field, "a list of layer numbers", repr(layers))
    return tuple(layers)
