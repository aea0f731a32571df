"""Tiles and splits of decodes whose shape was measured: written by ``benchmarks/tune_kernels.py``.

Measured on one NVIDIA H200 with torch 2.11.0 and triton 3.6.0.
"""

DECODES: dict[tuple[int, int], tuple[int, int, int, int, bool, bool]] = {
    (64, 4): (128, 4, 2, 16, True, False),
    (64, 128): (64, 4, 3, 1, True, True),
    (64, 256): (128, 4, 3, 1, True, False),
    (128, 32): (64, 4, 5, 4, True, False),
    (128, 64): (64, 4, 5, 2, True, False),
    (128, 128): (64, 4, 5, 1, True, True),
    (128, 256): (64, 4, 3, 1, True, True),
    (128, 512): (64, 4, 2, 1, True, False),
    (128, 2048): (64, 4, 2, 1, True, False),
}
"""(width of a head as it is computed, (request, key head) pairs rounded up to a power of two): (keys of a
tile, warps, stages, splits at most, whether all is asked for at once, whether warps have keys of their own).
Of 2-byte elements and at most 16 rows."""
