"""Options with which several engines are built one after another. Owns what must not change between them."""

from dataclasses import replace

from legato.config.options import EngineOptions
from legato.engine.resolve import Resolved
from legato.kvcache.sizing import bytes_per_block


def pinned(options: EngineOptions, resolved: Resolved) -> EngineOptions:
    """Return ``options`` with the cache, lengths, backend and graph sizes that they resolved to, and no policy.

    Free memory is another once weights are loaded, so that open options would resolve to something else each time.
    """
    cache = resolved.config.cache
    block_bytes = bytes_per_block(resolved.layer_groups, cache.block_size, resolved.dtype.itemsize)
    return replace(
        options,
        attention_backend=resolved.config.attention_backend,
        kv_cache_memory_bytes=cache.num_blocks * block_bytes,
        max_model_len=resolved.config.scheduler.max_model_len,
        graph_policy=None,
        graph_sizes=resolved.config.graph_sizes,
        enforce_eager=False,
        compilation_config=None,
    )
