"""Tensors of a GGUF file under their Hugging Face names, dequantised. Owns that naming and llama files' row order."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from legato.config.model import ModelConfig
from legato.errors import WeightsError
from legato.loading.architectures import ARCHITECTURES
from legato.loading.gguf_file import GGUFFile, GGUFTensor
from legato.loading.stored_tensor import StoredTensor

_PLAIN = {
    GGMLQuantizationType.F64: torch.float64,
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# gguf's routines work on 16 rows at once: with rows of this many blocks its loop is short, its temporaries in cache.
_BLOCKS_PER_ROW = 256


def hf_name(gguf_name: str) -> str:
    """Return the Hugging Face name of a GGUF tensor; one that has none keeps its own."""
    stem, _, suffix = gguf_name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{suffix}"
    block, _, part = stem.partition(".")[2].partition(".")
    if stem.startswith("blk.") and part in _BLOCK:
        return f"model.layers.{block}.{_BLOCK[part]}.{suffix}"
    return gguf_name


def gguf_tensors(gguf: GGUFFile, config: ModelConfig) -> Iterator[StoredTensor]:
    """Yield every tensor of the file; nothing is dequantised before its ``load`` is called."""
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
    permuted = ARCHITECTURES[config.architecture].gguf_permutes_qk
    for tensor in gguf.tensors.values():
        num_heads = heads.get(tensor.name.split(".")[-2], 0) if permuted and tensor.name.count(".") else 0
        yield StoredTensor(
            name=hf_name(tensor.name),
            stored_name=tensor.name,
            file=str(gguf.path),
            shape=tensor.shape,
            num_bytes=tensor.num_bytes,
            load=partial(_load, gguf, tensor, num_heads),
        )


def dequantise(gguf: GGUFFile, tensor: GGUFTensor) -> torch.Tensor:
    """Return a tensor in its own floating type, or as float32 if it is quantised.

    Raises WeightsError for a type that the gguf package does not decode.
    """
    raw = gguf.raw(tensor)
    if tensor.type in _PLAIN:
        # torch warns of memory that cannot be written; the copy is small beside a quantised tensor's.
        return torch.from_numpy(raw.copy()).view(_PLAIN[tensor.type]).view(tensor.shape)
    _, block_bytes = GGML_QUANT_SIZES[tensor.type]
    num_blocks = tensor.num_bytes // block_bytes
    rows = raw.reshape(-1, math.gcd(num_blocks, _BLOCKS_PER_ROW) * block_bytes)
    try:
        values = dequantize(rows, tensor.type)
    except NotImplementedError as error:
        raise WeightsError(
            "a tensor is stored in a type that cannot be decoded",
            {
                "file": gguf.path,
                "tensor": tensor.name,
                "expected": "a type that the gguf package decodes",
                "found": tensor.type.name,
                "options": "another file of the model, such as Q8_0 or F16",
            },
        ) from error
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).view(tensor.shape)


def _load(gguf: GGUFFile, tensor: GGUFTensor, num_heads: int) -> torch.Tensor:
    values = dequantise(gguf, tensor)
    return _halves_from_pairs(values, num_heads) if num_heads else values


def _halves_from_pairs(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama files' row order: a head's rotary pairs lie next to each other there, half a head apart here."""
    pairs = rows.view(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)
