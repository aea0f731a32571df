"""Rotary position embedding of heads (arXiv 2104.09864), alone and behind a norm of each head.

A head's dimension ``i`` is paired with ``i + rotary_dim / 2``. Cosines and signed sines, [num_tokens, 1, rotary_dim],
are looked up once per step for all layers: the first half of a head loses ``sin`` times the second half, the second
half gains it, so that the first half of the sines is negative.
"""

import torch

from legato.kernels.rms_norm import rms_norm_reference


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return ``heads`` [num_tokens, num_heads, head_dim] turned by the angles of their positions.

    Dimensions beyond ``rotary_dim`` stay as they are. On a GPU the heads are turned where they lie, in one launch.
    """
    if heads.is_cuda:
        from legato.kernels import rotary_triton

        return rotary_triton.rotate(heads, cos, sin)
    return rotate_reference(heads, cos, sin)


def normalise_and_rotate(
    heads: torch.Tensor,
    head_counts: tuple[int, int],
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the queries and the keys of ``heads``, each head normalised (arXiv 2505.09388), then turned.

    ``heads`` [num_tokens, sum(head_counts), head_dim] holds queries before keys; the weights are [head_dim]. On a GPU
    the heads are changed where they lie, in one launch.
    """
    if heads.is_cuda and cos.shape[-1] == heads.shape[-1]:
        from legato.kernels import rotary_triton

        rotary_triton.normalise_and_rotate(heads, head_counts[0], query_weight, key_weight, eps, cos, sin)
        query, key = heads.split(head_counts, dim=1)
        return query, key
    return normalise_and_rotate_reference(heads, head_counts, query_weight, key_weight, eps, cos, sin)


def rotate_reference(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Compute :func:`rotate` with torch alone. Exchanging halves with ``roll`` makes this three operations."""
    rotary_dim = cos.shape[-1]
    if rotary_dim == heads.shape[-1]:
        return torch.addcmul(heads * cos, heads.roll(rotary_dim // 2, -1), sin)
    return torch.cat([rotate_reference(heads[..., :rotary_dim], cos, sin), heads[..., rotary_dim:]], dim=-1)


def normalise_and_rotate_reference(
    heads: torch.Tensor,
    head_counts: tuple[int, int],
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute :func:`normalise_and_rotate` with torch alone."""
    query, key = heads.split(head_counts, dim=1)
    return (
        rotate_reference(rms_norm_reference(query, query_weight, eps), cos, sin),
        rotate_reference(rms_norm_reference(key, key_weight, eps), cos, sin),
    )
