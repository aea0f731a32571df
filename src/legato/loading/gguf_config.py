"""GGUF metadata -> ModelConfig. Owns the metadata's spellings; what no metadata says is read off the tensors' names.

Keys after https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file without an output
matrix is tied; one that holds the matrix twice, in two quantisations, is loaded as stored.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from legato.config.model import ModelConfig, RopeConfig
from legato.loading.architectures import find_gguf_architecture, unsupported
from legato.loading.config_fields import Fields, lie
from legato.loading.gguf_file import GGUFFile, open_gguf
from legato.loading.gguf_weights import dequantise

# general.file_type of files that are not quantised; see llama.h's enum llama_ftype.
_FILE_DTYPES = {1: "float16", 32: "bfloat16"}


def read_gguf_config(path: Path) -> ModelConfig:
    """Return the configuration of the model in a GGUF file. Raises as ``parse_hf_config`` does."""
    gguf = open_gguf(path)
    fields = Fields(gguf.metadata, str(path))
    name = fields.text("general.architecture")
    architecture = find_gguf_architecture(name, str(path))
    _refuse_what_is_not_computed(fields, name)
    num_layers = fields.integer(f"{name}.block_count")
    hidden_size = fields.integer(f"{name}.embedding_length")
    num_heads, num_kv_heads, head_dim = _heads(fields, name, hidden_size)
    vocab_size = _vocab_size(gguf, hidden_size)
    window = fields.integer(f"{name}.attention.sliding_window", 0, minimum=0) or None
    rotary_dim = fields.integer(f"{name}.rope.dimension_count", head_dim)
    eos = [fields.token_ids(f"tokenizer.ggml.{kind}_token_id", vocab_size) for kind in ("eos", "eot", "eom")]
    return ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=fields.integer(f"{name}.feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=fields.integer(f"{name}.context_length"),
        rms_norm_eps=fields.number(f"{name}.attention.layer_norm_rms_epsilon", 1e-6),
        rope=_rope(gguf, fields, name, None if rotary_dim == head_dim else rotary_dim),
        tie_word_embeddings="output.weight" not in gguf.tensors,
        qkv_bias="blk.0.attn_q.bias" in gguf.tensors,
        output_bias="blk.0.attn_output.bias" in gguf.tensors,
        mlp_bias="blk.0.ffn_up.bias" in gguf.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in gguf.tensors,
        sliding_windows=(window,) * num_layers,
        dtype=_FILE_DTYPES.get(fields.integer("general.file_type", 0, minimum=0), "float32"),
        bos_token_id=next(iter(fields.token_ids("tokenizer.ggml.bos_token_id", vocab_size)), None),
        eos_token_ids=tuple(dict.fromkeys(token_id for ids in eos for token_id in ids)),
    )


def _refuse_what_is_not_computed(fields: Fields, name: str) -> None:
    if fields.integer(f"{name}.expert_count", 0, minimum=0):
        raise unsupported("mixture of experts", f"{name}.expert_count", fields.file, options="dense models")
    if fields.integer("split.count", 1, minimum=0) > 1:
        options = "one whole file (llama-gguf-split --merge makes it)"
        raise unsupported("splitting into several files", "split.count above 1", fields.file, options=options)


def _heads(fields: Fields, name: str, hidden_size: int) -> tuple[int, int, int]:
    num_heads = fields.integer(f"{name}.attention.head_count")
    num_kv_heads = fields.integer(f"{name}.attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        field = f"{name}.attention.head_count_kv"
        raise lie(fields.file, field, f"a divisor of head_count ({num_heads})", num_kv_heads)
    key_length = fields.values.get(f"{name}.attention.key_length")
    if key_length is None and hidden_size % num_heads:
        raise lie(fields.file, f"{name}.embedding_length", f"a multiple of head_count ({num_heads})", hidden_size)
    head_dim = fields.integer(f"{name}.attention.key_length", hidden_size // num_heads)
    value_length = fields.integer(f"{name}.attention.value_length", head_dim)
    if head_dim % 2 or value_length != head_dim:
        expected = "an even number, the same as value_length"
        raise lie(fields.file, f"{name}.attention.key_length", expected, f"{head_dim} and {value_length}")
    return num_heads, num_kv_heads, head_dim


def _vocab_size(gguf: GGUFFile, hidden_size: int) -> int:
    """Return the embedding's rows: the tokenizer may have fewer ids."""
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[1] != hidden_size:
        found = "no such tensor" if embedding is None else f"shape {embedding.shape}"
        raise lie(str(gguf.path), "token_embd.weight", f"shape (vocab size, {hidden_size})", found)
    return embedding.shape[0]


def _rope(gguf: GGUFFile, fields: Fields, name: str, rotary_dim: int | None) -> RopeConfig:
    theta = fields.number(f"{name}.rope.freq_base", 10_000.0)
    kind = fields.text(f"{name}.rope.scaling.type", "none")
    scaling: dict[str, Any] = {}
    if "rope_freqs.weight" in gguf.tensors:
        kind, scaling = "llama3", _llama3_scaling(gguf, theta)
    elif kind in ("linear", "yarn"):
        scaling["factor"] = fields.number(f"{name}.rope.scaling.factor")
    elif kind == "none":
        kind = "default"
    else:
        raise unsupported("rotary embedding", f"{name}.rope.scaling.type {kind}", fields.file, options="linear, yarn")
    if kind == "yarn":
        key = f"{name}.rope.scaling.original_context_length"
        scaling["original_max_position_embeddings"] = fields.integer(key)
    return RopeConfig(theta=theta, kind=kind, scaling=scaling, rotary_dim=rotary_dim)


def _llama3_scaling(gguf: GGUFFile, theta: float) -> dict[str, Any]:
    """Return Llama 3's scaling, of which the file holds only the divisor of each frequency.

    All published models have low and high factors of 1 and 4 and 8192 original positions. The divisors that these
    give must be the file's.
    """
    tensor = gguf.tensors["rope_freqs.weight"]
    stored = dequantise(gguf, tensor).numpy()  # [rotary_dim / 2] float32
    factor, low, high, original = round(float(stored.max()), 4), 1.0, 4.0, 8192
    wavelengths = 2 * math.pi * theta ** (np.arange(stored.size) / stored.size)
    smooth = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    if not np.allclose(stored, 1 / ((1 - smooth) / factor + smooth), rtol=1e-3):
        raise unsupported("rotary embedding", "rope_freqs.weight", str(gguf.path), options="those of Llama 3")
    return {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
