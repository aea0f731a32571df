"""Rotary position embedding of heads (arXiv 2104.09864), and where the turned heads go. Owns what a rotation is.

A head's dimension ``i`` is paired with ``i + rotary_dim / 2``. Cosines and signed sines are looked up once per step for
all layers: the first half of a head loses ``sin`` times the second half, the second half gains it, so that the first
half of the sines is negative.
"""

from dataclasses import dataclass

import torch

from legato.kernels.rms_norm import rms_norm_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm:
    """The norm of each query and key head that stands before the rotation in some families (arXiv 2505.09388)."""

    query_weight: torch.Tensor  # [head_dim]
    key_weight: torch.Tensor  # [head_dim]
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How a step's queries and keys are turned: by the angles of their positions, behind a norm where there is one."""

    cos: torch.Tensor  # [num_tokens, 1, rotary_dim]
    sin: torch.Tensor  # [num_tokens, 1, rotary_dim], negative in the first half
    norm: HeadNorm | None = None


def rotate_and_store(
    heads: torch.Tensor,
    rotation: Rotation,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> torch.Tensor:
    """Turn queries and keys, write keys and values at ``slot_mapping`` [num_tokens] int64, and return the queries.

    ``heads`` [num_tokens, num_heads + 2 * num_kv_heads, head_dim] holds each token's queries, then its keys, then its
    values, and stays as it is; the heads of a token lie side by side. Both caches are contiguous
    [num_blocks, block_size, num_kv_heads, head_dim]. Returns [num_tokens, num_heads, head_dim]. On a GPU all of it is
    one launch, and the queries are contiguous: they keep nothing else of ``heads`` alive.
    """
    if heads.is_cuda:
        from legato.kernels import rotary_triton

        return rotary_triton.rotate_and_store(heads, rotation, key_cache, value_cache, slot_mapping)
    return rotate_and_store_reference(heads, rotation, key_cache, value_cache, slot_mapping)


def rotate_and_store_reference(
    heads: torch.Tensor,
    rotation: Rotation,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> torch.Tensor:
    """Compute :func:`rotate_and_store` with torch alone."""
    query, key, value = rotated_parts(heads, key_cache.shape[2], rotation)
    key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key)
    value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value)
    return query


def rotated_parts(
    heads: torch.Tensor, num_kv_heads: int, rotation: Rotation
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the queries and keys of ``heads``, turned, and its values as they are, with torch alone.

    Each is [num_tokens, its heads, head_dim]. Queries and keys are turned together where no norm tells them apart.
    """
    num_heads = heads.shape[1] - 2 * num_kv_heads
    norm = rotation.norm
    if norm is None:
        query_and_key, value = heads.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        query, key = rotate(query_and_key, rotation.cos, rotation.sin).split((num_heads, num_kv_heads), dim=1)
        return query, key, value
    query, key, value = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    query = rotate(rms_norm_reference(query, norm.query_weight, norm.eps), rotation.cos, rotation.sin)
    key = rotate(rms_norm_reference(key, norm.key_weight, norm.eps), rotation.cos, rotation.sin)
    return query, key, value


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return ``heads`` [num_tokens, num_heads, head_dim] turned, with torch alone.

    Dimensions beyond ``rotary_dim`` stay as they are. Exchanging halves with ``roll`` makes this three operations.
    """
    rotary_dim = cos.shape[-1]
    if rotary_dim == heads.shape[-1]:
        return torch.addcmul(heads * cos, heads.roll(rotary_dim // 2, -1), sin)
    return torch.cat([rotate(heads[..., :rotary_dim], cos, sin), heads[..., rotary_dim:]], dim=-1)
