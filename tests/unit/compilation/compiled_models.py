"""Tiny models for the compilation tests, and a piece compiler that runs the traced piece as it is."""

from collections.abc import Callable
from pathlib import Path

import torch
from tiny_engine import options, write_config

from legato.compilation.compiled_model import CompiledModel, compile_model
from legato.compilation.pieces import Piece
from legato.engine.bootstrap import load_model
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.models.causal_lm import CausalLM

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
CPU = torch.device("cpu")
MAX_TOKENS = 100


def as_traced(piece: Piece) -> Callable[..., tuple[torch.Tensor, ...]]:
    return piece.graph


def tiny(folder: Path, family: str = "llama", **changes: object) -> CausalLM:
    changes = {"architectures": [FAMILIES[family]], "model_type": family, "initializer_range": 0.3} | changes
    write_config(folder, **changes)
    return load_model(resolve(options(folder)), BuildProgress(None))


def compiled(model: CausalLM) -> CompiledModel:
    return compile_model(model, CPU, as_traced, max_num_tokens=MAX_TOKENS)
