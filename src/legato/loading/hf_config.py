"""config.json of Hugging Face -> ModelConfig. Owns that file's spellings, old and new; reads no weights.

Two styles exist: ``rope_theta`` with ``rope_scaling`` and ``torch_dtype``, and since transformers 5 ``rope_parameters``
with ``dtype``. Token ids that end a text are gathered from config.json and generation_config.json.
"""

import json
from pathlib import Path
from typing import Any

from legato.config.model import ModelConfig, RopeConfig
from legato.errors import ModelError, ModelNotFoundError
from legato.loading.architectures import ARCHITECTURES, find_architecture, unsupported
from legato.loading.config_fields import Fields, lie

ROPE_KINDS = ("default", "linear", "dynamic", "yarn", "llama3")
ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
DTYPES = ("float32", "bfloat16", "float16")

_ROPE_NUMBERS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON file holds. Raises ModelNotFoundError or ModelError, naming the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        details = {"file": path, "found": "no such file", "options": "a folder in Hugging Face layout | a .gguf file"}
        raise ModelNotFoundError(f"{path.name} is missing", details) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot be read", {"file": path, "expected": "JSON", "found": error}) from error
    if not isinstance(values, dict):
        found = type(values).__name__
        raise ModelError(f"{path.name} cannot be read", {"file": path, "expected": "a mapping", "found": found})
    return values


def read_hf_config(folder: Path) -> ModelConfig:
    """Return the configuration in ``folder``/config.json, and end tokens of generation_config.json if it exists."""
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.exists() else {}
    return parse_hf_config(read_json(folder / "config.json"), str(folder / "config.json"), generation)


def parse_hf_config(values: dict[str, Any], file: str, generation: dict[str, Any] | None = None) -> ModelConfig:
    """Return the configuration that ``values`` describe.

    Raises ModelError, naming file, field, expected and found, for values that cannot be true together, and
    UnsupportedModelError for an architecture or a feature that Legato does not compute.
    """
    fields = Fields(values, file)
    architecture = find_architecture(_architecture_names(fields), file)
    family = ARCHITECTURES[architecture]
    if values.get("quantization_config"):
        found = f"quantization_config {values['quantization_config']}"
        raise unsupported("quantisation", found, file, options="an unquantised checkpoint, or a GGUF file")
    vocab_size = fields.integer("vocab_size")
    num_layers = fields.integer("num_hidden_layers")
    num_heads, num_kv_heads, head_dim = _heads(fields)
    rope = _rope(fields, head_dim)
    attention_bias = fields.flag("attention_bias", False) if family.qkv_bias is None else False
    eos = fields.token_ids("eos_token_id", vocab_size)
    eos += Fields(generation or {}, f"{file}, generation_config.json beside it").token_ids("eos_token_id", vocab_size)
    return ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=_max_positions(fields, rope),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope,
        hidden_act=_one_of(fields, "hidden_act", "silu", ACTIVATIONS),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        qkv_bias=attention_bias if family.qkv_bias is None else family.qkv_bias,
        output_bias=attention_bias,
        mlp_bias=family.has_mlp_bias and fields.flag("mlp_bias", False),
        qk_norm=family.qk_norm,
        sliding_windows=_sliding_windows(fields, architecture, num_layers),
        num_mtp_modules=fields.integer("num_nextn_predict_layers", 0, minimum=0),
        dtype=_one_of(fields, "dtype" if "dtype" in values else "torch_dtype", "float32", DTYPES),
        bos_token_id=next(iter(fields.token_ids("bos_token_id", vocab_size)), None),
        eos_token_ids=tuple(dict.fromkeys(eos)),
    )


def _architecture_names(fields: Fields) -> list[str]:
    names = fields.values.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise lie(fields.file, "architectures", "a list of class names", repr(names))
    return names


def _heads(fields: Fields) -> tuple[int, int, int]:
    """Return (query heads, key heads, head size), which must divide as grouped-query attention asks."""
    num_heads = fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise lie(fields.file, "num_key_value_heads", f"a divisor of num_attention_heads ({num_heads})", num_kv_heads)
    hidden_size = fields.integer("hidden_size")
    if fields.values.get("head_dim") is None and hidden_size % num_heads:
        raise lie(fields.file, "hidden_size", f"a multiple of num_attention_heads ({num_heads})", hidden_size)
    head_dim = fields.integer("head_dim", hidden_size // num_heads)
    if head_dim % 2:
        raise lie(fields.file, "head_dim", "an even number, as rotary embedding turns pairs", head_dim)
    return num_heads, num_kv_heads, head_dim


def _rope(fields: Fields, head_dim: int) -> RopeConfig:
    old = Fields(fields.mapping("rope_scaling"), f"{fields.file}, rope_scaling")
    new = Fields(fields.mapping("rope_parameters"), f"{fields.file}, rope_parameters")
    rope = new if new.values else old
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ROPE_KINDS:
        raise unsupported("rotary embedding", f"rope_type {kind}", fields.file, options=", ".join(ROPE_KINDS))
    scaling = {
        name: value
        for name, value in rope.values.items()
        if value is not None and name not in ("type", "rope_type", "rope_theta", "partial_rotary_factor")
    }
    if kind in ("yarn", "llama3"):
        scaling.setdefault("original_max_position_embeddings", fields.integer("max_position_embeddings"))
    checked = Fields(scaling, rope.file)
    for name in _ROPE_NUMBERS.get(kind, ()):
        checked.number(name)
    share = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    return RopeConfig(
        theta=new.number("rope_theta", fields.number("rope_theta", 10_000.0)),
        kind=kind,
        scaling=scaling if kind != "default" else {},
        rotary_dim=None if share == 1.0 else int(head_dim * share),
    )


def _max_positions(fields: Fields, rope: RopeConfig) -> int:
    """Return the longest sequence. Configs with YaRN may name the length from before the extension."""
    stated = fields.integer("max_position_embeddings")
    if rope.kind != "yarn":
        return stated
    return max(stated, int(rope.scaling["factor"] * rope.scaling["original_max_position_embeddings"]))


def _sliding_windows(fields: Fields, architecture: str, num_layers: int) -> tuple[int | None, ...]:
    family = ARCHITECTURES[architecture]
    unbounded: tuple[int | None, ...] = (None,) * num_layers
    if not family.has_window or fields.values.get("sliding_window") is None:
        return unbounded
    window = fields.integer("sliding_window")
    if not family.window_from_layer:
        return (window,) * num_layers
    if not fields.flag("use_sliding_window", False):
        return unbounded
    kinds = fields.values.get("layer_types")
    if kinds is None:
        first = fields.integer("max_window_layers", 28, minimum=0)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
        raise lie(fields.file, "layer_types", f"{num_layers} of {' and '.join(known)}", repr(kinds))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _one_of(fields: Fields, name: str, default: str, choices: tuple[str, ...]) -> str:
    value = fields.text(name, default).removeprefix("torch.")
    if value not in choices:
        raise unsupported(name, value, fields.file, options=", ".join(choices))
    return value
