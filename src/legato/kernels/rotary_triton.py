# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.rotary`: one launch for queries, keys and values, inside or outside a graph.

A program has one token and a group of heads of one kind, so that a single token spreads over several multiprocessors.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import (
    NARROW,
    early_start,
    wait_before_the_next_starts,
    wait_for_the_kernel_before,
)
from legato.kernels.rotary import Rotation

_BLOCK_HEADS = 8
_MOST_TOKENS_TO_HOLD = 8
_NUM_WARPS = 4


@triton.jit
def _turn(
    source: tl.tensor,  # [BLOCK_HEADS, 1] pointers to heads, as are the destinations
    destination: tl.tensor,
    is_head: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    weight: tl.tensor,
    eps: tl.tensor,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    NORMALISE: tl.constexpr,
) -> None:
    """Normalise and turn heads; what lies beyond the rotary dimensions is normalised alone."""
    pair = tl.arange(0, BLOCK_HALF)[None, :]
    in_half = pair < HALF
    inside = is_head & in_half
    first = tl.load(source + pair, mask=inside, other=0.0)
    second = tl.load(source + HALF + pair, mask=inside, other=0.0)
    # Both halves turn by the same angle; the sines of the second half have their own sign.
    cosine = tl.load(cos + pair, mask=in_half, other=0.0).to(tl.float32)
    sine = tl.load(sin + HALF + pair, mask=in_half, other=0.0).to(tl.float32)
    dtype = first.dtype
    first, second = first.to(tl.float32), second.to(tl.float32)
    if BLOCK_REST > 0:
        beyond = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        in_rest = beyond < HEAD_DIM
        rest = tl.load(source + beyond, mask=is_head & in_rest, other=0.0)
    if NORMALISE:
        squares = tl.sum(first * first + second * second, axis=1)[:, None]
        if BLOCK_REST > 0:
            exact = rest.to(tl.float32)
            squares += tl.sum(exact * exact, axis=1)[:, None]
        factor = tl.rsqrt(squares / HEAD_DIM + eps)
        first_weight = tl.load(weight + pair, mask=in_half, other=0.0).to(tl.float32)
        second_weight = tl.load(weight + HALF + pair, mask=in_half, other=0.0).to(tl.float32)
        # Rounded before the weight, as transformers does.
        first = ((first * factor).to(dtype).to(tl.float32) * first_weight).to(dtype).to(tl.float32)
        second = ((second * factor).to(dtype).to(tl.float32) * second_weight).to(dtype).to(tl.float32)
        if BLOCK_REST > 0:
            rest_weight = tl.load(weight + beyond, mask=in_rest, other=0.0).to(tl.float32)
            rest = ((exact * factor).to(dtype).to(tl.float32) * rest_weight).to(dtype)
    turned_first = (first * cosine).to(dtype).to(tl.float32) - second * sine
    turned_second = (second * cosine).to(dtype).to(tl.float32) + first * sine
    tl.store(destination + pair, turned_first.to(dtype), mask=inside)
    tl.store(destination + HALF + pair, turned_second.to(dtype), mask=inside)
    if BLOCK_REST > 0:
        tl.store(destination + beyond, rest, mask=is_head & in_rest)


@triton.jit
def _rotate_and_store_kernel(
    heads: tl.tensor,
    query: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    slot_mapping: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    query_weight: tl.tensor,
    key_weight: tl.tensor,
    token_stride: tl.tensor,
    angle_stride: tl.tensor,
    eps: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    NORMALISE: tl.constexpr,
    HOLD_NEXT: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    if HOLD_NEXT:
        wait_before_the_next_starts(EARLY)
    else:
        wait_for_the_kernel_before(EARLY)
    token = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    slot = tl.load(slot_mapping + token)  # asked for first: addresses of the cache wait for it
    QUERY_GROUPS: tl.constexpr = (NUM_HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    KEY_GROUPS: tl.constexpr = (NUM_KV_HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    source = heads + token * token_stride
    cosines, sines = cos + token * angle_stride, sin + token * angle_stride
    if group < QUERY_GROUPS:
        head = group * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
        _turn(
            source + head * HEAD_DIM,
            query + token * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM,
            head < NUM_HEADS,
            cosines,
            sines,
            query_weight,
            eps,
            HEAD_DIM,
            HALF,
            BLOCK_HALF,
            BLOCK_REST,
            NORMALISE,
        )
    elif group < QUERY_GROUPS + KEY_GROUPS:
        head = (group - QUERY_GROUPS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
        _turn(
            source + (NUM_HEADS + head) * HEAD_DIM,
            key_cache + slot * (NUM_KV_HEADS * HEAD_DIM) + head * HEAD_DIM,
            head < NUM_KV_HEADS,
            cosines,
            sines,
            key_weight,
            eps,
            HEAD_DIM,
            HALF,
            BLOCK_HALF,
            BLOCK_REST,
            NORMALISE,
        )
    else:
        head = (group - QUERY_GROUPS - KEY_GROUPS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
        dimension = tl.arange(0, BLOCK_DIM)[None, :]
        inside = (head < NUM_KV_HEADS) & (dimension < HEAD_DIM)
        value = tl.load(source + (NUM_HEADS + NUM_KV_HEADS + head) * HEAD_DIM + dimension, mask=inside)
        tl.store(value_cache + slot * (NUM_KV_HEADS * HEAD_DIM) + head * HEAD_DIM + dimension, value, mask=inside)


def rotate_and_store(
    heads: torch.Tensor,
    rotation: Rotation,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> torch.Tensor:
    """Turn queries and keys, write keys and values to the cache, and return the queries, in one launch."""
    (num_tokens, num_all_heads, head_dim), num_kv_heads = heads.shape, key_cache.shape[2]
    num_heads = num_all_heads - 2 * num_kv_heads
    query = torch.empty((num_tokens, num_heads, head_dim), dtype=heads.dtype, device=heads.device)
    if num_tokens == 0:
        return query
    cos, sin, norm = rotation.cos, rotation.sin, rotation.norm
    assert heads.stride()[1:] == (head_dim, 1), "the heads of a token lie side by side"
    assert cos.stride(2) == sin.stride(2) == 1 and cos.stride(0) == sin.stride(0)
    half, rest = cos.shape[-1] // 2, head_dim - cos.shape[-1]
    groups = triton.cdiv(num_heads, _BLOCK_HEADS) + 2 * triton.cdiv(num_kv_heads, _BLOCK_HEADS)
    _rotate_and_store_kernel[(num_tokens, groups)](
        heads,
        query,
        key_cache,
        value_cache,
        slot_mapping,
        cos,
        sin,
        cos if norm is None else norm.query_weight,
        cos if norm is None else norm.key_weight,
        heads.stride(0),
        cos.stride(0),
        0.0 if norm is None else norm.eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HALF=half,
        BLOCK_HEADS=_BLOCK_HEADS,
        BLOCK_HALF=triton.next_power_of_2(half),
        BLOCK_REST=triton.next_power_of_2(rest) if rest else 0,
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        NORMALISE=norm is not None,
        HOLD_NEXT=num_heads * head_dim <= NARROW and num_tokens <= _MOST_TOKENS_TO_HOLD,
        **early_start(num_tokens, num_heads * head_dim),
        num_warps=_NUM_WARPS,
    )
    return query
