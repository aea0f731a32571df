"""A trained head in the layout of published EAGLE-3 checkpoints. Owns what their two files say."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from legato.config.model import ModelConfig
from legato.engine.resolve import Resolved
from legato.loading.draft_head_config import parse_draft_head_config
from legato.models.build_head import MASK, OFFSETS
from legato.speculative.eagle3 import ARCHITECTURES, auxiliary_layers
from legato.training.settings import TrainingOptions

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_ARCHITECTURE = "LlamaForCausalLMEagle3"


def describe_head(resolved: Resolved, options: TrainingOptions, draft_vocab_size: int) -> dict[str, Any]:
    """Return the head's config.json, with the layers that it reads. Raises ConfigError where the target lacks them."""
    target = resolved.config.model
    describe = partial(
        head_description,
        target,
        draft_vocab_size=draft_vocab_size,
        intermediate_size=options.intermediate_size,
        dtype=resolved.config.dtype,
    )
    asked = parse_draft_head_config(describe(auxiliary_layers=options.auxiliary_layers), CONFIG, ARCHITECTURES)
    return describe(auxiliary_layers=auxiliary_layers(asked, target))


def head_description(
    target: ModelConfig,
    *,
    auxiliary_layers: Sequence[int] | None,
    draft_vocab_size: int,
    intermediate_size: int | None,
    dtype: str,
) -> dict[str, Any]:
    """Return the config.json of a head whose layer has the sizes of the target's, but for those given.

    ``auxiliary_layers``: None leaves them to the reader. Biases, windows and head norms of a target are not the head's.
    """
    values: dict[str, Any] = {
        "architectures": [_ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "intermediate_size": intermediate_size or target.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "hidden_act": target.hidden_act,
        "rms_norm_eps": target.rms_norm_eps,
        "max_position_embeddings": target.max_position_embeddings,
        "rope_theta": target.rope.theta,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": draft_vocab_size,
        "target_hidden_size": target.hidden_size,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": target.bos_token_id,
        "eos_token_id": list(target.eos_token_ids) or None,
        "torch_dtype": dtype,
    }
    if target.rope.kind != "default":
        values["rope_scaling"] = {"rope_type": target.rope.kind, **target.rope.scaling}
    if target.rope.rotary_dim is not None:
        values["partial_rotary_factor"] = target.rope.rotary_dim / target.head_dim
    if auxiliary_layers is not None:
        layers = list(auxiliary_layers)
        values["eagle_aux_hidden_state_layer_ids"] = layers
        values["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": layers, "use_aux_hidden_state": True}
    return values


def publish(
    folder: Path, description: Mapping[str, Any], weights: Mapping[str, torch.Tensor], draft_ids: torch.Tensor
) -> None:
    """Write the head into ``folder``, replacing the one there only when all of it is written.

    ``weights`` by their published names, stored as ``description`` says; ``draft_ids`` [draft_vocab_size] int64.
    """
    dtype = getattr(torch, description["torch_dtype"])
    tensors = {name: weight.to(dtype).cpu().contiguous() for name, weight in weights.items()}
    draft_ids = draft_ids.cpu()
    tensors[OFFSETS] = draft_ids - torch.arange(len(draft_ids))
    tensors[MASK] = torch.zeros(description["vocab_size"], dtype=torch.bool).index_fill_(0, draft_ids, True)
    unfinished = folder / f"{WEIGHTS}.unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(description, indent=2) + "\n")
    unfinished.replace(folder / WEIGHTS)
