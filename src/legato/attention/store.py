"""Writing keys and values into the paged cache: the step that every backend begins with."""

import torch

from legato.kernels.kv_store import store_keys_and_values
from legato.kvcache.storage import LayerCache


def store(cache: LayerCache, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Write ``key`` and ``value`` [num_tokens, num_kv_heads, head_dim] at ``slot_mapping`` [num_tokens] int64."""
    store_keys_and_values(key, value, cache.key, cache.value, slot_mapping)
