"""Seeds from seeds. Pure: frontends derive the seeds of requests with it and never load torch for that."""

GOLDEN = 0x9E3779B97F4A7C15
"""Weyl increment of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
MIX_A = 0xBF58476D1CE4E5B9
MIX_B = 0x94D049BB133111EB
_MASK64 = 2**64 - 1


def mix_seed(seed: int, stream: int = 0) -> int:
    """Return a well-mixed signed 64-bit number for ``seed`` and ``stream`` (splitmix64)."""
    mixed = (seed + (stream + 1) * GOLDEN) & _MASK64
    mixed = ((mixed ^ (mixed >> 30)) * MIX_A) & _MASK64
    mixed = ((mixed ^ (mixed >> 27)) * MIX_B) & _MASK64
    return signed(mixed ^ (mixed >> 31), 64)


def signed(number: int, num_bits: int) -> int:
    """Return the two's complement value of an unsigned ``number`` of ``num_bits``."""
    return number - 2**num_bits if number >= 2 ** (num_bits - 1) else number
