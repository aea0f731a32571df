"""Sizing the KV cache by what everything else takes. Owns the exchange of a first, small cache for the real one.

Graphs hold the cache's addresses, so that it must be there before they are captured; what they take is measured on a
few of them over a cache of a block for each request.
"""

import torch

from legato.config.options import EngineOptions
from legato.engine.memory import MemoryReport, left_for_kv, weight_bytes
from legato.engine.resolve import Resolved, with_measured_cache
from legato.kvcache.sizing import NUM_NULL_BLOCKS, bytes_per_block
from legato.kvcache.storage import LayerCache, allocate
from legato.runner.memory_profile import MemoryProfile, profile_memory
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import StepProgram
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticLimits


def first_caches(resolved: Resolved) -> dict[int, LayerCache]:
    """Return the cache to begin with: the real one where its size is known, a block for each request otherwise."""
    return _allocate(resolved, _first_blocks(resolved))


def size_cache(
    resolved: Resolved, options: EngineOptions, program: StepProgram
) -> tuple[Resolved, MemoryProfile | None]:
    """Give ``program`` the cache that the device has room for; return what is decided now, and what was measured.

    Nothing is done where the size is known. Raises ConfigError where the cache would hold no sequence.
    """
    if not resolved.kv_is_measured:
        return resolved, None
    profile = profile_memory(resolved.device, program, first_graphs(resolved, program), largest_step(resolved))
    program.caches = {}
    device = resolved.device
    device.release_unused_memory()
    budget = left_for_kv(
        device, share=options.gpu_memory_utilization, still_needed=profile.activations + profile.graphs
    )
    resolved = with_measured_cache(resolved, options, budget)
    program.caches = _allocate(resolved, resolved.config.cache.num_blocks)
    return resolved, profile


def synthetic_limits(resolved: Resolved, num_blocks: int) -> SyntheticLimits:
    """Return what made-up batches may use of a cache of ``num_blocks``."""
    config = resolved.config
    return SyntheticLimits(
        max_num_seqs=config.scheduler.max_num_seqs,
        max_model_len=config.scheduler.max_model_len,
        num_blocks=num_blocks,
        block_size=config.cache.block_size,
        vocab_size=config.model.vocab_size,
        lookahead=_lookahead(resolved),
    )


def planned_memory(resolved: Resolved) -> MemoryReport:
    """Return what is known before anything is built; the cache among it unless its size is measured."""
    return _report(resolved, None, graphs=None, kv_is_known=not resolved.kv_is_measured)


def memory_report(resolved: Resolved, profile: MemoryProfile | None, graphs: ServingGraphs) -> MemoryReport:
    """Return what everything took, with graphs captured."""
    return _report(resolved, profile, graphs=graphs.num_bytes, kv_is_known=True)


def _report(
    resolved: Resolved, profile: MemoryProfile | None, *, graphs: int | None, kv_is_known: bool
) -> MemoryReport:
    cache = resolved.config.cache
    block_bytes = bytes_per_block(resolved.layer_groups, cache.block_size, resolved.dtype.itemsize)
    drafter = 0 if resolved.speculation is None else resolved.speculation.plan.weight_bytes
    return MemoryReport(
        weights=weight_bytes(resolved.config.model, resolved.dtype) + drafter,
        activations=None if profile is None else profile.activations,
        graphs_estimated=None if profile is None else profile.graphs_in_all,
        graphs=graphs,
        kv_cache=cache.num_blocks * block_bytes if kv_is_known else None,
        kv_cache_tokens=(cache.num_blocks - NUM_NULL_BLOCKS) * cache.block_size if kv_is_known else None,
    )


def first_graphs(resolved: Resolved, program: StepProgram) -> ServingGraphs:
    """Return graphs over the cache of :func:`first_caches`, none of which is captured."""
    return ServingGraphs(
        resolved.device, program, resolved.catalog, synthetic_limits(resolved, _first_blocks(resolved))
    )


def largest_step(resolved: Resolved) -> StepShape:
    """Return the sizes of the step that takes the most memory while it runs."""
    scheduler = resolved.config.scheduler
    num_reqs, num_tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
    return StepShape(
        num_tokens=num_tokens,
        num_reqs=num_reqs,
        query_len=None,
        max_query_len=num_tokens,
        key_ints=resolved.key_ints(num_reqs, None, scheduler.max_model_len),
    )


def _first_blocks(resolved: Resolved) -> int:
    config = resolved.config
    if not resolved.kv_is_measured:
        return config.cache.num_blocks
    blocks_each = -(-(max(resolved.limits.widths) + _lookahead(resolved)) // config.cache.block_size)
    return min(config.cache.num_blocks, config.scheduler.max_num_seqs * blocks_each + NUM_NULL_BLOCKS)


def _lookahead(resolved: Resolved) -> int:
    """Return the tokens behind a step's own whose keys and values a drafter may write."""
    found = resolved.speculation
    return 0 if found is None else found.config.num_speculative_tokens


@torch.inference_mode()
def _allocate(resolved: Resolved, num_blocks: int) -> dict[int, LayerCache]:
    return allocate(
        resolved.layer_groups,
        num_blocks=num_blocks,
        block_size=resolved.config.cache.block_size,
        dtype=resolved.dtype,
        device=resolved.device.torch_device,
    )
