"""Compiling the kernels of every kind of step together, before the first step runs. Owns which steps stand for all.

Steps run without their Triton kernels, which leave their outputs as they were: so new memory holds zeros, which are
valid as tokens, rows and places in the cache. Nothing that such a step computes is used.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from legato.device.protocol import Device
from legato.graphs.estimate import kind_of
from legato.graphs.key import GraphKey
from legato.graphs.modes import SamplerVariant
from legato.kernels.linear_tilings import row_class
from legato.models.causal_lm import CausalLM
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import CausalModel, StepProgram
from legato.runner.step_shape import StepShape, graph_shape
from legato.runner.synthetic import install, make_batch, own_shape_of


def compile_kernels(
    device: Device,
    program: StepProgram,
    graphs: ServingGraphs,
    largest: StepShape,
    told: Callable[[int, int], None],
) -> None:
    """Compile what a step of shape ``largest`` and those of the catalog launch; no request may be in flight.

    ``told`` is given (kernels compiled, kernels asked for), in some thread.
    """
    from legato.kernels.compile_together_triton import can_compile_together, compiled_together

    if can_compile_together():
        with compiled_together(told):
            launch_every_kind(device, program, graphs, largest)


@torch.inference_mode()
def launch_every_kind(device: Device, program: StepProgram, graphs: ServingGraphs, largest: StepShape) -> None:
    """Launch, once at least, each kernel that a step of shape ``largest`` and those of the catalog launch.

    For a time when kernels do not run. What does not fit in memory is left to who runs it in earnest, and says so.
    """
    capturer, limits = graphs.capturer(), graphs.limits
    with suppress(torch.OutOfMemoryError), _different_layers(program.model), ZeroedMemory():
        install(make_batch(largest, limits, seed=0), largest, program.buffers, program.state)
        program.forward(largest)
        program.head(largest, SamplerVariant.GENERAL)
        device.synchronize()  # before its inputs' staging arrays are written again
        for key in kinds(graphs.catalog.keys):
            shape = graph_shape(key, limits.max_num_seqs)
            batch = make_batch(shape, limits, seed=0)
            install(batch, shape, program.buffers, program.state)
            capturer.run_eagerly(key, own_shape_of(batch, key, shape))
    device.release_unused_memory()
    capturer.clear()


def _different_layers(model: CausalModel) -> AbstractContextManager[None]:
    return model.different_layers_alone() if isinstance(model, CausalLM) else nullcontext()


def kinds(keys: Iterable[GraphKey]) -> Iterator[GraphKey]:
    """Yield a key of each kind whose kernels may differ from those of other kinds: sizes tell by their class alone."""
    seen = set()
    for key in sorted(keys, key=lambda key: key.num_tokens):
        kind = kind_of(key), row_class(key.num_tokens), row_class(key.num_reqs or key.num_tokens)
        if kind not in seen:
            seen.add(kind)
            yield key


class ZeroedMemory(TorchFunctionMode):
    """Within, memory that is allocated holds zeros."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = function(*arguments, **(options or {}))
        if function in _ALLOCATIONS:
            result.zero_()
        return result


_ALLOCATIONS = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}
