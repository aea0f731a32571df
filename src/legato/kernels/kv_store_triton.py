# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Writing new keys and values into the paged cache: one launch for both, inside or outside a graph.

The plain form is :func:`legato.kernels.kv_store.store_keys_and_values_reference`.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _store_kernel(
    key: tl.tensor,
    value: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    slot_mapping: tl.tensor,
    key_stride: tl.tensor,
    value_stride: tl.tensor,
    ROW: tl.constexpr,
    ROW_PADDED: tl.constexpr,
) -> None:
    """Copy one token's keys and values, ``ROW`` elements each; neighbours along the row make 16-byte accesses."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    column = tl.arange(0, ROW_PADDED)
    inside = column < ROW
    new_key = tl.load(key + token * key_stride + column, mask=inside)
    new_value = tl.load(value + token * value_stride + column, mask=inside)
    tl.store(key_cache + slot * ROW + column, new_key, mask=inside)
    tl.store(value_cache + slot * ROW + column, new_value, mask=inside)


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
    num_tokens, num_kv_heads, head_dim = key.shape
    row = num_kv_heads * head_dim
    if num_tokens == 0:
        return
    assert key.stride()[1:] == value.stride()[1:] == (head_dim, 1), "the heads of a token lie side by side"
    warps = 4 if row >= 1024 else 1
    _store_kernel[(num_tokens,)](
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        key.stride(0),
        value.stride(0),
        ROW=row,
        ROW_PADDED=triton.next_power_of_2(row),
        num_warps=warps,
    )
