"""What the user may ask of the engine. Owns the option names, defaults and help; decides nothing.

The command line, the server and the documentation derive from these fields. ``legato.engine.bootstrap`` resolves them
against a model and a device into an :class:`~legato.config.engine.EngineConfig`.
"""

from dataclasses import dataclass, field
from typing import Any


def option(default: Any, help: str, *, choices: tuple[str, ...] | None = None, metavar: str | None = None) -> Any:
    """Declare one engine option: its default, the help text, and for enumerated ones the choices."""
    return field(default=default, metadata={"help": help, "choices": choices, "metavar": metavar})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Engine options as typed, the same for every command. ``None`` means: chosen by Legato and reported."""

    model: str = option("smollm2", "Model: 'smollm2', a folder in Hugging Face layout, a hub id, or a .gguf file.")
    device: str = option("auto", "Device to run on.", choices=("auto", "cpu", "cuda"))
    dtype: str = option(
        "auto", "Data type of weights and activations.", choices=("auto", "float32", "bfloat16", "float16")
    )
    load_format: str = option(
        "auto",
        "How weights are stored; 'dummy' makes random ones from config.json alone.",
        choices=("auto", "safetensors", "gguf", "dummy"),
    )
    max_model_len: int | None = option(None, "Longest sequence, prompt and output together, in tokens.")
    max_num_seqs: int | None = option(None, "Requests in one step at most.")
    max_num_batched_tokens: int | None = option(None, "Tokens in one step at most: the prefill chunk budget.")
    gpu_memory_utilization: float = option(0.9, "Share of the GPU's memory the engine may use.")
    kv_cache_memory_bytes: int | None = option(None, "Bytes for the KV cache; overrides the memory share.")
    block_size: int = option(16, "Tokens per KV cache block.")
    prefix_caching: bool = option(True, "Reuse KV blocks of equal prefixes.")
    scheduling_policy: str = option("fcfs", "Order of waiting requests.", choices=("fcfs", "priority"))
    attention_backend: str = option("auto", "Attention backend; see 'legato inspect backends'.")
    graph_policy: str | None = option(
        None,
        "Which steps become graphs.",
        choices=("none", "piecewise", "full", "full_decode_only", "full_and_piecewise"),
    )
    graph_sizes: tuple[int, ...] | None = option(None, "Captured sizes in tokens, comma-separated.", metavar="N,N,…")
    graph_strict: bool = option(False, "Fail at start-up where the graphs asked for cannot be had.")
    enforce_eager: bool = option(False, "No graphs: the same as --graph-policy none.")
    compilation_config: str | None = option(
        None,
        "Graph settings as other engines spell them: cudagraph_mode, cudagraph_capture_sizes, full_cuda_graph, "
        "separate_attention_routine.",
        metavar="JSON",
    )
    max_logprobs: int = option(20, "Log-probabilities per token a request may ask for.")
    max_queue: int = option(1024, "Requests held, running and waiting, before new ones are refused.")
    seed: int = option(0, "Seed of requests that bring none, and of dummy weights.")
    served_model_name: str | None = option(None, "Model name in the HTTP interface; default: the --model text.")
