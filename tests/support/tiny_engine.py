"""Engines around a random model of a few thousand parameters, and what a user of the engine core does with them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.flow.request import Request
from legato.flow.request_update import FinishReason
from legato.flow.sampling_params import SamplingParams
from legato.flow.step_output import TokenLogprobs

VOCAB_SIZE = 96
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
BLOCK_BYTES_PER_TOKEN = 2 * 2 * 2 * 8 * 4
"""Keys and values, layers, heads, head size, float32."""


def write_config(folder: Path, **changes: object) -> Path:
    """Write a model that exists as a configuration alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def options(folder: Path, **changes: object) -> EngineOptions:
    """Options of a small engine on the CPU, with weights drawn at random."""
    defaults: dict[str, object] = {
        "load_format": "dummy",
        "device": "cpu",
        "block_size": 4,
        "max_model_len": 64,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "kv_cache_memory_bytes": kv_bytes(num_blocks=65, block_size=4),
    }
    return EngineOptions(model=str(folder), **(defaults | changes))


def build(folder: Path, **changes: object) -> EngineCore:
    """Build the engine of :func:`options`."""
    return build_engine(options(folder, **changes))


def kv_bytes(*, num_blocks: int, block_size: int) -> int:
    """Bytes of a pool of so many blocks, the null block included."""
    return num_blocks * block_size * BLOCK_BYTES_PER_TOKEN


def request(
    request_id: str,
    prompt: Sequence[int],
    *,
    max_tokens: int = 8,
    seed: int = 0,
    arrival: float = 0.0,
    **params: object,
) -> Request:
    """A request that ends by length or by its own stop tokens; greedy unless a temperature is given."""
    sampling = SamplingParams(**({"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True} | params))
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=sampling,
        seed=seed,
        stop_token_ids=frozenset(sampling.stop_token_ids),
        max_tokens=max_tokens,
        arrival=arrival,
    )


@dataclass(slots=True)
class Result:
    """What one request got."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None


def run(core: EngineCore, requests: Iterable[Request], *, max_steps: int = 10_000) -> dict[str, Result]:
    """Run requests together to their end."""
    results = {}
    for one in requests:
        core.add(one)
        results[one.request_id] = Result()
    for _ in range(max_steps):
        if not core.has_work:
            return results
        step(core, results)
    raise AssertionError("requests do not come to an end")


def step(core: EngineCore, results: dict[str, Result]) -> None:
    """Run one step and add what is new to ``results``."""
    for update in core.step():
        result = results[update.request_id]
        result.token_ids += update.token_ids
        result.logprobs += update.logprobs
        result.prompt_logprobs += update.prompt_logprobs
        result.finish_reason = update.finish_reason or result.finish_reason


def tokens(core: EngineCore, requests: Iterable[Request]) -> dict[str, list[int]]:
    """Run requests together and return their tokens."""
    return {request_id: result.token_ids for request_id, result in run(core, requests).items()}
