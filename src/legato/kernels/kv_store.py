"""Writing new keys and values into the paged cache."""

import torch


def store_keys_and_values(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write ``key`` and ``value`` [num_tokens, num_kv_heads, head_dim] at ``slot_mapping`` [num_tokens] int64.

    Both caches are contiguous [num_blocks, block_size, num_kv_heads, head_dim]. Tokens may lie apart in ``key`` and
    ``value``, as slices of one fused projection do; the heads of a token must not.
    """
    if key.is_cuda:
        from legato.kernels import kv_store_triton

        kv_store_triton.store_keys_and_values(key, value, key_cache, value_cache, slot_mapping)
    else:
        store_keys_and_values_reference(key, value, key_cache, value_cache, slot_mapping)


def store_keys_and_values_reference(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Compute :func:`store_keys_and_values` with torch alone."""
    key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key)
    value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value)
