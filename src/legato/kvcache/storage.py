"""The device memory of the paged KV cache. Owns the tensors; knows blocks by number only."""

from dataclasses import dataclass

import torch

from legato.errors import ConfigError
from legato.kvcache.spec import FullAttentionSpec, LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """One layer's keys and values."""

    key: torch.Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    value: torch.Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]


def allocate(
    groups: tuple[LayerGroup, ...], *, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> dict[int, LayerCache]:
    """Return zeroed storage per layer index.

    Raises ConfigError for a spec that keeps something other than keys and values, and where memory is short.
    """
    caches = {}
    for group in groups:
        spec = group.spec
        if not isinstance(spec, FullAttentionSpec):
            raise ConfigError(
                f"layer group {group.name!r} cannot be stored",
                {"found": type(spec).__name__, "limit": "keys and values of attention layers"},
            )
        shape = (num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        for layer in group.layers:
            try:
                key, value = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
            except (RuntimeError, MemoryError) as error:  # torch's many ways to say that memory is short
                raise ConfigError(
                    "the KV cache cannot be allocated",
                    {
                        "requested": f"{num_blocks} blocks of {block_size} tokens on {device}",
                        "found": str(error).split("\n")[0],
                        "options": "a smaller --kv-cache-memory-bytes | a smaller --gpu-memory-utilization",
                    },
                ) from error
            caches[layer] = LayerCache(key=key, value=value)
    return caches
