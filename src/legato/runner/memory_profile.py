"""What steps and graphs take beside weights and cache, by running a few of them. Owns the order of the measurements.

Runs over a cache of a few blocks, before the real one is allocated: what is left after it is the cache's.
"""

from dataclasses import dataclass

import torch

from legato.device.protocol import Device
from legato.errors import ConfigError
from legato.graphs.estimate import estimate_bytes, sample_keys
from legato.graphs.modes import SamplerVariant
from legato.runner.attention_plans import prepare_made_up
from legato.runner.graph_capture import DroppedKey, frozen_garbage_collection
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import StepProgram
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticLimits, install, make_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """Bytes beside weights, buffers and cache."""

    activations: int
    """The most that a step without graphs takes while it runs."""
    graph_pool: int
    """What all graphs share; in use already."""
    graphs: int
    """What the graphs of the catalog will take beside it, estimated."""

    @property
    def graphs_in_all(self) -> int:
        """The estimate that is compared with what the captured graphs take."""
        return self.graph_pool + self.graphs


def profile_memory(
    device: Device,
    program: StepProgram,
    graphs: ServingGraphs,
    largest: StepShape,
) -> MemoryProfile:
    """Return what a step of shape ``largest`` takes, and what all ``graphs`` will.

    A few are captured and dropped again; their pool stays for the graphs to come. Raises ConfigError where that step
    does not fit in memory.
    """
    capturer, store, keys = graphs.capturer(), graphs.store, graphs.catalog.keys
    with torch.inference_mode(), frozen_garbage_collection():
        activations = _activation_bytes(device, program, graphs.limits, largest)
        samples = sample_keys(keys)
        for key in samples:
            if isinstance(capturer.prove(key), DroppedKey):
                store.drop(key)
        sampled = {key: graph.num_bytes for key, graph in store.graphs.items()}
        pool = device.graph_pool_bytes()
        for key in samples:
            store.drop(key)
        capturer.clear()
    return MemoryProfile(activations=activations, graph_pool=pool, graphs=estimate_bytes(keys, sampled))


def _activation_bytes(device: Device, program: StepProgram, limits: SyntheticLimits, shape: StepShape) -> int:
    """Run one step without graphs and return what the allocator kept of it."""
    device.release_unused_memory()
    batch = make_batch(shape, limits, seed=0)
    install(batch, shape, program.buffers, program.state)
    prepare_made_up(program.planner, shape, batch)
    try:
        program.forward(shape)
        program.head(shape, SamplerVariant.GENERAL)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            "the largest step does not fit in memory",
            {
                "requested": f"--max-num-batched-tokens {shape.num_tokens} --max-num-seqs {shape.num_reqs}",
                "found": str(error).splitlines()[0],
                "options": "less of either",
            },
        ) from error
    device.synchronize()
    free = device.memory_free_bytes()
    device.release_unused_memory()
    return max(0, device.memory_free_bytes() - free)
