"""The noise of sampling: logarithms of exponential variates that depend on (seed, position, token id) alone."""

import torch

from legato.kernels.random_bits import random_bits

UNIT = 2.0**-31 * (1.0 - 2.0**-23)
"""Scales an odd int32 in [-2^31 + 1, -1] to a float32 strictly inside (-1, 0)."""


def log_exponential(
    mixed_seeds: torch.Tensor,  # [num_reqs] int64, scattered
    positions: torch.Tensor,  # [num_reqs] int64, of the token to be sampled
    hashes: torch.Tensor,  # [vocab] or [num_reqs, vocab] int32, a scattered number for each token id
) -> torch.Tensor:
    """Return the logarithm of an Exp(1) variate per row and token; its negative is a Gumbel variate.

    [num_reqs, vocab] float32, always finite. Near the decisive end, where the variate is small, its resolution is
    2^-30: ``log1p`` keeps what ``-log(uniform)`` would round away. On a GPU all of it is one launch.
    """
    if positions.is_cuda:
        from legato.kernels import log_exponential_triton

        return log_exponential_triton.log_exponential(mixed_seeds, positions, hashes)
    return log_exponential_reference(mixed_seeds, positions, hashes)


def log_exponential_reference(mixed_seeds: torch.Tensor, positions: torch.Tensor, hashes: torch.Tensor) -> torch.Tensor:
    """Compute :func:`log_exponential` with torch alone."""
    bits = random_bits(mixed_seeds, positions, hashes)
    return bits.to(torch.float32).mul_(UNIT).log1p_().neg_().log_()
