"""Masks of packed bits forbid the tokens whose bit is missing, and touch no other row."""

import numpy as np
import pytest
import torch

from legato.kernels.token_mask import allowed_only


def packed(allowed: torch.Tensor) -> torch.Tensor:
    """[n, vocab] bool -> [n, ceil(vocab / 32)] int32"""
    bits = np.packbits(allowed.numpy(), axis=1, bitorder="little")
    bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 4)))
    return torch.from_numpy(bits).view(torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 5000])
def test_tokens_without_their_bit_are_forbidden_and_free_rows_stay(vocab_size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, vocab_size).to(dtype)
    before = logits.clone()
    allowed = torch.rand(3, vocab_size) < 0.5
    places = torch.tensor([4, 0, 2])
    out = allowed_only(logits, places, packed(allowed))
    assert torch.equal(out[places], logits[places].masked_fill(~allowed, float("-inf")))
    assert torch.equal(out[[1, 3]], logits[[1, 3]])
    assert torch.equal(logits, before)
