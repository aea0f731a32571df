# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.rotary`: one program per token and group of heads, in place."""

import torch
import triton
import triton.language as tl

_BLOCK_HEADS = 8
_NUM_WARPS = 4


@triton.jit
def _weight_of(query_weight: tl.tensor, key_weight: tl.tensor, inside: tl.tensor, is_query: tl.tensor) -> tl.tensor:
    of_query = tl.load(query_weight, mask=inside, other=0.0).to(tl.float32)
    of_key = tl.load(key_weight, mask=inside, other=0.0).to(tl.float32)
    return tl.where(is_query, of_query, of_key)


@triton.jit
def _rotate_kernel(
    heads: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    query_weight: tl.tensor,
    key_weight: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    angle_stride: tl.tensor,
    num_heads: tl.tensor,
    num_query_heads: tl.tensor,
    eps: tl.tensor,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    NORMALISE: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
    pair = tl.arange(0, BLOCK_HALF)[None, :]
    in_half = pair < HALF
    inside = (head < num_heads) & in_half
    place = heads + token * token_stride + head * head_stride + pair
    first = tl.load(place, mask=inside, other=0.0)
    second = tl.load(place + HALF, mask=inside, other=0.0)
    dtype = first.dtype
    first, second = first.to(tl.float32), second.to(tl.float32)
    if NORMALISE:
        squares = tl.sum(first * first + second * second, axis=1)[:, None]
        factor = tl.rsqrt(squares / (2 * HALF) + eps)
        is_query = head < num_query_heads
        first_weight = _weight_of(query_weight + pair, key_weight + pair, in_half, is_query)
        second_weight = _weight_of(query_weight + HALF + pair, key_weight + HALF + pair, in_half, is_query)
        first = ((first * factor).to(dtype).to(tl.float32) * first_weight).to(dtype).to(tl.float32)
        second = ((second * factor).to(dtype).to(tl.float32) * second_weight).to(dtype).to(tl.float32)
    # Both halves turn by the same angle; the sines of the second half have their own sign.
    cosine = tl.load(cos + token * angle_stride + pair, mask=in_half, other=0.0).to(tl.float32)
    sine = tl.load(sin + token * angle_stride + HALF + pair, mask=in_half, other=0.0).to(tl.float32)
    turned_first = (first * cosine).to(dtype).to(tl.float32) - second * sine
    turned_second = (second * cosine).to(dtype).to(tl.float32) + first * sine
    tl.store(place, turned_first.to(dtype), mask=inside)
    tl.store(place + HALF, turned_second.to(dtype), mask=inside)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn ``heads`` [num_tokens, num_heads, head_dim] in place and return them."""
    _launch(heads, 0, cos, cos, 0.0, cos, sin, normalise=False)
    return heads


def normalise_and_rotate(
    heads: torch.Tensor,
    num_query_heads: int,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> None:
    """Normalise and turn ``heads`` [num_tokens, num_heads, rotary_dim] in place."""
    _launch(heads, num_query_heads, query_weight, key_weight, eps, cos, sin, normalise=True)


def _launch(
    heads: torch.Tensor,
    num_query_heads: int,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    normalise: bool,
) -> None:
    num_tokens, num_heads, _ = heads.shape
    assert heads.stride(2) == cos.stride(2) == sin.stride(2) == 1 and cos.stride(0) == sin.stride(0)
    half = cos.shape[-1] // 2
    _rotate_kernel[(num_tokens, triton.cdiv(num_heads, _BLOCK_HEADS))](
        heads,
        cos,
        sin,
        query_weight,
        key_weight,
        heads.stride(0),
        heads.stride(1),
        cos.stride(0),
        num_heads,
        num_query_heads,
        eps,
        HALF=half,
        BLOCK_HEADS=_BLOCK_HEADS,
        BLOCK_HALF=triton.next_power_of_2(half),
        NORMALISE=normalise,
        num_warps=_NUM_WARPS,
    )
