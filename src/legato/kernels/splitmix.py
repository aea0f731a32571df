"""The numbers of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), for hosts and kernels alike. Pure: never loads torch."""

GOLDEN = 0x9E3779B97F4A7C15
"""The Weyl increment."""
MIX_A = 0xBF58476D1CE4E5B9
MIX_B = 0x94D049BB133111EB


def signed(number: int, num_bits: int) -> int:
    """Return the two's complement value of an unsigned ``number`` of ``num_bits``."""
    return number - 2**num_bits if number >= 2 ** (num_bits - 1) else number
