"""What the user may ask of the engine. Owns the option names, defaults and help; decides nothing.

The command line, the server and the documentation derive from these fields. ``legato.engine.bootstrap`` resolves them
against a model and a device into an :class:`~legato.config.engine.EngineConfig`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

MODEL = "Model"
BATCHING = "Memory and batching"
GRAPHS = "Attention and graphs"
SPECULATION = "Speculative decoding"
REQUESTS = "Requests"
TRACING = "Tracing"

_FEW_REQUESTS = 16
"""Up to this many, a batch of exactly that size starts sooner than one of the device's default size."""


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
    panel: str | None = None,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare one option: default, help, the choices of an enumerated one, and the panel of the help it stands in."""
    return field(
        default=default,
        metadata={"help": help, "choices": choices, "metavar": metavar, "panel": panel, "aliases": aliases},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Engine options as typed, the same for every command. ``None`` means: chosen by Legato and reported."""

    model: str = option(
        "smollm2", "Model: 'smollm2', a folder in Hugging Face layout, a hub id, or a .gguf file.", panel=MODEL
    )
    device: str = option("auto", "Device to run on.", choices=("auto", "cpu", "cuda"), panel=MODEL)
    dtype: str = option(
        "auto",
        "Data type of weights and activations.",
        choices=("auto", "float32", "bfloat16", "float16"),
        panel=MODEL,
    )
    load_format: str = option(
        "auto",
        "How weights are stored; 'dummy' makes random ones from config.json alone.",
        choices=("auto", "safetensors", "gguf", "dummy"),
        panel=MODEL,
    )
    max_model_len: int | None = option(None, "Longest sequence, prompt and output together, in tokens.", panel=BATCHING)
    max_num_seqs: int | None = option(None, "Requests in one step at most.", panel=BATCHING)
    max_num_batched_tokens: int | None = option(
        None, "Tokens in one step at most: the prefill chunk budget.", panel=BATCHING
    )
    gpu_memory_utilization: float = option(0.9, "Share of the GPU's memory the engine may use.", panel=BATCHING)
    kv_cache_memory_bytes: int | None = option(
        None, "Bytes for the KV cache; overrides the memory share.", panel=BATCHING
    )
    block_size: int = option(16, "Tokens per KV cache block.", panel=BATCHING)
    prefix_caching: bool = option(True, "Reuse KV blocks of equal prefixes.", panel=REQUESTS)
    scheduling_policy: str = option("fcfs", "Order of waiting requests.", choices=("fcfs", "priority"), panel=BATCHING)
    overlap: bool | None = option(
        None, "Launch each step before the tokens of the last one are read; unset: on a GPU only.", panel=BATCHING
    )
    attention_backend: str = option(
        "auto",
        "Attention backend, or two: one for decodes and one for the rest, as triton+flash_attn_3; "
        "see 'legato inspect backends'.",
        panel=GRAPHS,
    )
    graph_policy: str | None = option(
        None,
        "Which steps become graphs.",
        choices=("none", "piecewise", "full", "full_decode_only", "full_and_piecewise"),
        panel=GRAPHS,
    )
    graph_sizes: tuple[int, ...] | None = option(
        None, "Captured sizes in tokens, comma-separated.", metavar="N,N,…", panel=GRAPHS
    )
    graph_strict: bool = option(False, "Fail at start-up where the graphs asked for cannot be had.", panel=GRAPHS)
    enforce_eager: bool = option(False, "No graphs: the same as --graph-policy none.", panel=GRAPHS)
    compile: str = option(
        "none",
        "Generate the code between attention calls with TorchInductor, or run the kernels as written.",
        choices=("none", "inductor"),
        panel=GRAPHS,
    )
    compilation_config: str | None = option(
        None,
        "Graph settings as other engines spell them: cudagraph_mode, cudagraph_capture_sizes, full_cuda_graph, "
        "separate_attention_routine; also -cc.NAME=VALUE each, and -O0 to -O3.",
        metavar="JSON",
        panel=GRAPHS,
        aliases=("-cc",),
    )
    speculative_config: str | None = option(
        None,
        'The drafter, e.g. \'{"method": "ngram", "num_speculative_tokens": 4}\'; see docs/speculation.md.',
        metavar="JSON",
        panel=SPECULATION,
    )
    max_logprobs: int = option(20, "Log-probabilities per token a request may ask for.", panel=REQUESTS)
    max_queue: int = option(1024, "Requests held, running and waiting, before new ones are refused.", panel=REQUESTS)
    seed: int = option(0, "Seed of requests that bring none, and of dummy weights.", panel=REQUESTS)
    served_model_name: str | None = option(
        None, "Model name in the HTTP interface; default: the --model text.", panel=REQUESTS
    )
    trace: str | None = option(
        None, "Write a timeline of every step, for ui.perfetto.dev or chrome://tracing.", metavar="FILE", panel=TRACING
    )
    nvtx: bool = option(False, "Mark the parts of each step for NVIDIA's profilers.", panel=TRACING)

    def sized_for(self, num_requests: int) -> "EngineOptions":
        """Return options for so many requests and no more, where ``max_num_seqs`` is open: fewer graphs to capture."""
        if self.max_num_seqs is not None or num_requests > _FEW_REQUESTS:
            return self
        return replace(self, max_num_seqs=num_requests)
