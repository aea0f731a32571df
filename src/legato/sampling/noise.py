"""Random numbers that depend on (seed, position, token id) alone, by tensor operations.

A generator object would make a token depend on the order in which rows are drawn; a counter-based hash does not. So the
same seed gives the same text whatever else is in the batch, on whichever row, and inside a graph, which freezes a
generator's host state but not a tensor.
"""

import torch

from legato.kernels.random_bits import random_bits
from legato.kernels.splitmix import signed
from legato.sampling.seeds import mix_seed

_UNIT = 2.0**-31 * (1.0 - 2.0**-23)
"""Scales an odd int32 in [-2^31 + 1, -1] to a float32 strictly inside (-1, 0)."""


def token_hashes(vocab_size: int, device: torch.device) -> torch.Tensor:
    """Return a scattered number for each token id.  # [vocab] int32"""
    numbers = [signed(mix_seed(token_id) & 0xFFFFFFFF, 32) for token_id in range(vocab_size)]
    return torch.tensor(numbers, dtype=torch.int32, device=device)


def log_exponential(
    mixed_seeds: torch.Tensor,  # [num_reqs] int64, from mix_seed
    positions: torch.Tensor,  # [num_reqs] int64, of the token to be sampled
    hashes: torch.Tensor,  # [vocab] or [num_reqs, vocab] int32, from token_hashes
) -> torch.Tensor:
    """Return the logarithm of an Exp(1) variate per row and token; its negative is a Gumbel variate.

    [num_reqs, vocab] float32, always finite. Near the decisive end, where the variate is small, its resolution is
    2^-30: ``log1p`` keeps what ``-log(uniform)`` would round away.
    """
    bits = random_bits(mixed_seeds, positions, hashes)
    return bits.to(torch.float32).mul_(_UNIT).log1p_().neg_().log_()
