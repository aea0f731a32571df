"""Random bits that depend on (seed, position, number) alone, by integer tensor operations.

A counter-based hash (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Signed integers stand for
unsigned ones: torch's 32- and 64-bit products wrap around, its right shift copies the sign.
"""

import torch

from legato.kernels.splitmix import GOLDEN, MIX_A, signed

LOW_BIAS = 0x846CA68B
"""Multiplier with low avalanche bias at 32 bits (Wellons, "Prospecting for hash functions", 2018)."""
SIGN_AND_ONE = -(2**31) + 1


def random_bits(
    mixed_seeds: torch.Tensor,  # [num_reqs] int64, scattered
    positions: torch.Tensor,  # [num_reqs] int64
    hashes: torch.Tensor,  # [size] or [num_reqs, size] int32, scattered numbers
) -> torch.Tensor:
    """Return an odd number from -2^31 + 1 to -1 for each row and hash, each as likely.  # [num_reqs, size] int32"""
    keys = torch.add(mixed_seeds, positions, alpha=signed(GOLDEN, 64))
    keys = (keys ^ (keys >> 32)) * signed(MIX_A, 64)
    halves = (keys ^ (keys >> 29)).unsqueeze(-1).view(torch.int32)  # [num_reqs, 2]
    bits = (hashes + halves[:, :1]).mul_(halves[:, 1:] | 1)
    bits.bitwise_xor_(bits >> 15).mul_(signed(LOW_BIAS, 32))
    return bits.bitwise_or_(SIGN_AND_ONE)
