"""Tiles and splits of decodes whose shape was measured: written by ``benchmarks/tune_kernels.py``.

None has been: all follow the rules.
"""

DECODES: dict[tuple[int, int], tuple[int, int, int, int, bool, bool]] = {}
"""(width of a head as it is computed, (request, key head) pairs rounded up to a power of two): (keys of a
tile, warps, stages, splits at most, whether all is asked for at once, whether warps have keys of their own).
Of 2-byte elements and at most 16 rows."""
