"""Build engines as on a GPU, where kernels are named and do not run: run as a script.

Prints, for each engine, how many kernels its start launches, and those of them that were not asked for ahead. Engines
with a drafter have the memory of the CPU, in which no operation takes an index that is out of range.
"""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton
from compile_for_hopper import META, HopperDriver
from drafter_cases import CASES
from tiny_engine import write_config

from legato.attention.backends import triton as triton_backend
from legato.config.options import EngineOptions
from legato.device import host_memory
from legato.device.facts import DeviceFacts
from legato.engine import bootstrap, resolve
from legato.engine.kv_sizing import first_graphs, largest_step
from legato.engine.progress import BuildProgress
from legato.graphs.modes import SamplerVariant
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.models import build
from legato.runner import buffers, kernel_compilation
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import StepProgram
from legato.runner.step_shape import StepShape, graph_shape
from legato.runner.synthetic import install, make_batch, own_shape_of

SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
}
WINDOWS = {
    "architectures": ["Qwen2ForCausalLM"],
    "use_sliding_window": True,
    "sliding_window": 64,
    "max_window_layers": 1,
}
ENGINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "policies together": ({}, {"max_num_seqs": 100}),
    "any mix in one graph": ({}, {"graph_policy": "full", "max_num_seqs": 12}),
    "layers with and without a window": (WINDOWS, {"max_num_seqs": 9}),
}


class Gpu:
    """What building asks of a device."""

    facts = DeviceFacts(kind="cuda", capability=(9, 0), name="none", num_multiprocessors=132)
    has_own_memory = True

    def __init__(self, kind: str) -> None:
        self.torch_device = torch.device(kind)

    def memory_total_bytes(self) -> int:
        return 80 << 30

    memory_free_bytes = memory_total_bytes

    def synchronize(self) -> None:
        pass

    release_unused_memory = synchronize


def without_a_gpu() -> None:
    """Let tensors be those of a GPU, and those without memory be aligned as there."""
    address = torch.Tensor.data_ptr
    torch.Tensor.is_cuda = property(lambda tensor: True)
    torch.Tensor.data_ptr = lambda tensor: (
        4096 + tensor.storage_offset() * tensor.element_size() if tensor.is_meta else address(tensor)
    )
    resolve.open_device = Gpu
    build.fill = empty
    host_memory.on_host = lambda values, device: torch.from_numpy(values)
    buffers.host_buffer = lambda size, dtype, device: torch.empty(size, dtype=dtype)
    triton_backend.SplitWorkspace = lambda rows, head_dim, device: SplitWorkspace(rows, head_dim, META)
    triton.runtime.driver.set_active(HopperDriver())


def empty(source: object, config: object, parameters: dict[str, torch.Tensor], **_: object) -> build.LoadReport:
    """Take the place of loading."""
    for parameter in parameters.values():
        parameter.zero_()
    return build.LoadReport(seconds=0.0, num_bytes=0, num_tensors=len(parameters), unexpected=())


class Named(set[tuple[str, str]]):
    """The kernels that were launched: (function, what it is specialised for)."""

    def run(self, kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        """Take the place of a launch."""
        options |= {"debug": False, "instrumentation_mode": ""}
        _, names, _, _, binder = kernel.device_caches[0]
        _, specialization, parsed = binder(*arguments, **options)
        self.add((kernel.__name__, triton.runtime.jit.compute_cache_key(names, specialization, parsed)))


def program_of(folder: Path, memory: str, options: dict[str, Any]) -> tuple[resolve.Resolved, StepProgram]:
    show = BuildProgress(None)
    common = {"load_format": "dummy", "dtype": "bfloat16", "max_num_batched_tokens": 640}
    resolved = resolve.resolve(EngineOptions(model=str(folder), device=memory, **common | options))
    model = bootstrap.load_model(resolved, show)
    drafter = bootstrap._load_drafter(resolved, model, show)
    return resolved, bootstrap._build_program(resolved, model, bootstrap._build_backend(resolved, show), drafter)


@torch.inference_mode()
def start(program: StepProgram, graphs: ServingGraphs, largest: StepShape) -> None:
    """Launch what the start of an engine does, over both batches of each key."""
    capturer, limits = graphs.capturer(), graphs.limits
    install(make_batch(largest, limits, seed=0), largest, program.buffers, program.state)
    program.forward(largest)
    program.head(largest, SamplerVariant.GENERAL)
    for key in graphs.catalog.keys:
        shape = graph_shape(key, limits.max_num_seqs)
        for seed in (1, 2):
            batch = make_batch(shape, limits, seed)
            install(batch, shape, program.buffers, program.state)
            capturer.run_eagerly(key, own_shape_of(batch, key, shape))


@contextmanager
def launches_named():
    named, run = Named(), triton.JITFunction.run
    triton.JITFunction.run = lambda kernel, *arguments, **options: named.run(kernel, *arguments, **options)
    try:
        yield named
    finally:
        triton.JITFunction.run = run


def compare(name: str, folder: Path, memory: str, options: dict[str, Any]) -> None:
    """Print the kernels of an engine."""
    resolved, program = program_of(folder, memory, options)
    graphs, largest = first_graphs(resolved, program), largest_step(resolved)
    with launches_named() as asked:
        kernel_compilation.launch_every_kind(resolved.device, program, graphs, largest)
    with launches_named() as launched, kernel_compilation.ZeroedMemory():
        start(program, graphs, largest)
    print(f"{name}: {len(launched)}, not asked for: {sorted(launched - asked)}")


def main() -> None:
    without_a_gpu()
    for name, (model, options) in ENGINES.items():
        folder = write_config(Path(sys.argv[1], name), **SMOLLM2 | {"num_hidden_layers": 3} | model)
        compare(name, folder, "meta", options)
    for name, case in CASES.items():
        folder = Path(sys.argv[1], name)
        options = {"speculative_config": case.typed(folder, 3), "max_num_seqs": 9, "max_model_len": 64}
        compare(name, case.write_target(folder), "cpu", options)


if __name__ == "__main__":
    main()
