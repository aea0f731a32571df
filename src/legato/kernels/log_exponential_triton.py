# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.log_exponential`: a program per row and block of token ids."""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.log_exponential import UNIT
from legato.kernels.random_bits_triton import random_bits

_UNIT = tl.constexpr(UNIT)
_BLOCK = 1024
_NUM_WARPS = 4


@triton.jit
def _log1p(values: tl.tensor) -> tl.tensor:
    """Return ``log(1 + values)`` of float32 above -1, to a few roundings (Kahan's way, by what the sum has kept)."""
    whole = 1.0 + values
    kept = whole - 1.0
    exact = kept == 0.0
    return tl.where(exact, values, tl.log(whole) * (values / tl.where(exact, 1.0, kept)))


@triton.jit(do_not_specialize=["seed_stride", "position_stride"])
def _log_exponential_kernel(
    mixed_seeds: tl.tensor,
    positions: tl.tensor,
    hashes: tl.tensor,
    noise: tl.tensor,
    seed_stride: tl.tensor,
    position_stride: tl.tensor,
    hash_stride: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(mixed_seeds + row * seed_stride)
    position = tl.load(positions + row * position_stride)
    own_hashes = tl.load(hashes + row * hash_stride + column, mask=column < size, other=0)
    bits = random_bits(seed, position, own_hashes)
    variate = -_log1p(bits.to(tl.float32) * _UNIT)
    tl.store(noise + row * size + column, tl.log(variate), mask=column < size)


def log_exponential(mixed_seeds: torch.Tensor, positions: torch.Tensor, hashes: torch.Tensor) -> torch.Tensor:
    """Return the noise of all rows and tokens, [num_reqs, vocab] float32."""
    num_reqs, size = positions.shape[0], hashes.shape[-1]
    assert hashes.stride(-1) == 1
    noise = torch.empty(num_reqs, size, dtype=torch.float32, device=positions.device)
    if num_reqs == 0:
        return noise
    _log_exponential_kernel[(num_reqs, triton.cdiv(size, _BLOCK))](
        mixed_seeds,
        positions,
        hashes,
        noise,
        mixed_seeds.stride(0),
        positions.stride(0),
        hashes.stride(0) if hashes.ndim == 2 else 0,
        size,
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
    return noise
