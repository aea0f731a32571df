# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.token_mask`: logits are written where a bit is missing, and never read."""

import torch
import triton
import triton.language as tl

_BLOCK = 4096
_NUM_WARPS = 4


@triton.jit(do_not_specialize=["logits_stride", "bits_stride"])
def _forbid_kernel(
    logits: tl.tensor,
    places: tl.tensor,
    bits: tl.tensor,
    logits_stride: tl.tensor,
    bits_stride: tl.tensor,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    part, masked = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token = part * BLOCK + tl.arange(0, BLOCK)
    inside = token < VOCAB
    word = tl.load(bits + masked * bits_stride + token // 32, mask=inside, other=-1)
    forbidden = inside & (((word >> (token % 32)) & 1) == 0)
    row = tl.load(places + masked)
    tl.store(logits + row * logits_stride + token, float("-inf"), mask=forbidden)


def forbid(logits: torch.Tensor, places: torch.Tensor, bits: torch.Tensor) -> None:
    """Write -inf into rows ``places`` of ``logits`` where ``bits`` are not set."""
    vocab_size = logits.shape[1]
    assert logits.stride(1) == 1
    assert bits.stride(1) == 1
    _forbid_kernel[(triton.cdiv(vocab_size, _BLOCK), places.shape[0])](
        logits,
        places,
        bits,
        logits.stride(0),
        bits.stride(0),
        VOCAB=vocab_size,
        BLOCK=_BLOCK,
        num_warps=_NUM_WARPS,
    )
