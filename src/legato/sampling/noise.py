"""Random numbers that depend on (seed, position, token id) alone, by integer tensor operations.

A generator object would make a token depend on the order in which rows are drawn; a counter-based hash does not
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). So the same seed gives the same text whatever
else is in the batch, on whichever row, and inside a graph, which freezes a generator's host state but not a tensor.

Signed integers stand for unsigned ones: torch's 32- and 64-bit products wrap around, its right shift copies the sign.
"""

import torch

from legato.sampling.seeds import GOLDEN, MIX_A, mix_seed, signed

_LOW_BIAS = 0x846CA68B
"""Multiplier with low avalanche bias at 32 bits (Wellons, "Prospecting for hash functions", 2018)."""
_SIGN_AND_ONE = -(2**31) + 1
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
    keys = torch.add(mixed_seeds, positions, alpha=signed(GOLDEN, 64))
    keys = (keys ^ (keys >> 32)) * signed(MIX_A, 64)
    halves = (keys ^ (keys >> 29)).unsqueeze(-1).view(torch.int32)  # [num_reqs, 2]
    bits = (hashes + halves[:, :1]).mul_(halves[:, 1:] | 1)
    bits.bitwise_xor_(bits >> 15).mul_(signed(_LOW_BIAS, 32))
    bits.bitwise_or_(_SIGN_AND_ONE)
    return bits.to(torch.float32).mul_(_UNIT).log1p_().neg_().log_()
