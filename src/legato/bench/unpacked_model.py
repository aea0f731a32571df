"""A GGUF file as a folder in Hugging Face layout, for peers that read no GGUF. Owns the words of its config.json."""

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from legato.config.model import ModelConfig
from legato.loading.model_config import read_model_config
from legato.loading.source import ModelSource
from legato.loading.weights import stored_tensors


def unpack(source: ModelSource, dtype: str, folder: Path) -> None:
    """Write configuration and dequantised weights, without a tokenizer; ``dtype`` ``auto`` is the file's own."""
    config = read_model_config(source)
    dtype = config.dtype if dtype == "auto" else dtype
    weights = {tensor.name: tensor.load().to(getattr(torch, dtype)) for tensor in stored_tensors(source, config)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    description = transformers_config(config)
    description.architectures, description.dtype = [config.architecture], dtype
    description.save_pretrained(folder)


def transformers_config(config: ModelConfig) -> Any:
    """Return the same shape in the words of transformers."""
    kind = getattr(transformers, config.architecture.replace("ForCausalLM", "Config"))
    return kind(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={"rope_type": config.rope.kind, "rope_theta": config.rope.theta, **config.rope.scaling},
        hidden_act=config.hidden_act,
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=config.output_bias,
        bos_token_id=config.bos_token_id,
        eos_token_id=list(config.eos_token_ids),
    )
