# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""The hash of :mod:`legato.kernels.random_bits`, for kernels that draw."""

import triton
import triton.language as tl

from legato.kernels.random_bits import LOW_BIAS, SIGN_AND_ONE
from legato.kernels.splitmix import GOLDEN, MIX_A, signed

_GOLDEN = tl.constexpr(signed(GOLDEN, 64))
_MIX_A = tl.constexpr(signed(MIX_A, 64))
_LOW_BIAS = tl.constexpr(signed(LOW_BIAS, 32))
_SIGN_AND_ONE = tl.constexpr(SIGN_AND_ONE)


@triton.jit
def random_bits(mixed_seeds: tl.tensor, positions: tl.tensor, hashes: tl.tensor) -> tl.tensor:
    """Return an odd int32 below 0 for int64 seeds and positions and int32 hashes of shapes that go together."""
    keys = mixed_seeds + positions * _GOLDEN
    keys = (keys ^ (keys >> 32)) * _MIX_A
    keys = keys ^ (keys >> 29)
    bits = (hashes + keys.to(tl.int32)) * ((keys >> 32).to(tl.int32) | 1)
    bits = (bits ^ (bits >> 15)) * _LOW_BIAS
    return bits | _SIGN_AND_ONE
