"""Writing keys and values into the paged cache: the step that every backend begins with."""

import torch

from legato.kvcache.storage import LayerCache


def store(cache: LayerCache, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Write ``key`` and ``value`` [num_tokens, num_kv_heads, head_dim] at ``slot_mapping`` [num_tokens] int64."""
    cache.key.flatten(0, 1).index_copy_(0, slot_mapping, key)
    cache.value.flatten(0, 1).index_copy_(0, slot_mapping, value)
