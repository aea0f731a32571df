"""Seeds from seeds. Pure: frontends derive the seeds of requests with it and never load torch for that."""

from legato.kernels.splitmix import GOLDEN, MIX_A, MIX_B, signed

_MASK64 = 2**64 - 1


def mix_seed(seed: int, stream: int = 0) -> int:
    """Return a well-mixed signed 64-bit number for ``seed`` and ``stream`` (splitmix64)."""
    mixed = (seed + (stream + 1) * GOLDEN) & _MASK64
    mixed = ((mixed ^ (mixed >> 30)) * MIX_A) & _MASK64
    mixed = ((mixed ^ (mixed >> 27)) * MIX_B) & _MASK64
    return signed(mixed ^ (mixed >> 31), 64)
