"""Which tiling computes which product of few rows: a table measured on one H200, never tuned while serving.

``benchmarks/fused_kernels.py --tune`` prints it. A shape is absent where torch's own product is as fast, or where
nobody has measured. Keys are (rows rounded up to a power of two, width of the output, width of the input).
"""

from typing import NamedTuple

MAX_ROWS = 16


class Tiling(NamedTuple):
    """How a product is cut: each program reads ``block_out`` rows of the weights, ``block_in`` columns at a time."""

    block_out: int
    block_in: int
    num_warps: int
    num_stages: int
    """Depth of the software pipeline; 1: plain loads."""


def row_class(num_rows: int) -> int:
    """Return ``num_rows`` rounded up to a power of two."""
    return 1 << (num_rows - 1).bit_length()


_LLAMA_8B: dict[tuple[int, int, int], Tiling] = {
    (1, 6144, 4096): Tiling(4, 1024, 4, 1),
    (2, 6144, 4096): Tiling(32, 256, 4, 4),
    (4, 6144, 4096): Tiling(32, 256, 4, 4),
    (8, 6144, 4096): Tiling(32, 256, 4, 4),
    (16, 6144, 4096): Tiling(32, 256, 4, 4),
    (1, 4096, 4096): Tiling(4, 1024, 4, 1),
    (2, 4096, 4096): Tiling(16, 256, 4, 4),
    (4, 4096, 4096): Tiling(16, 256, 4, 4),
    (8, 4096, 4096): Tiling(16, 256, 4, 4),
    (16, 4096, 4096): Tiling(16, 256, 4, 4),
    (1, 4096, 14336): Tiling(4, 1024, 4, 1),
    (2, 4096, 14336): Tiling(16, 256, 4, 4),
    (4, 4096, 14336): Tiling(16, 256, 4, 4),
    (8, 4096, 14336): Tiling(16, 256, 4, 4),
    (16, 4096, 14336): Tiling(16, 256, 4, 4),
    (1, 128256, 4096): Tiling(8, 1024, 4, 1),
    (2, 128256, 4096): Tiling(64, 128, 4, 4),
    (4, 128256, 4096): Tiling(64, 128, 4, 4),
    (8, 128256, 4096): Tiling(64, 128, 4, 4),
    (16, 128256, 4096): Tiling(64, 128, 4, 4),
}
_SMOLLM2_135M: dict[tuple[int, int, int], Tiling] = {
    (1, 960, 576): Tiling(2, 1024, 4, 1),
    (1, 576, 576): Tiling(2, 1024, 4, 1),
    (1, 576, 1536): Tiling(2, 1024, 4, 1),
    (1, 49152, 576): Tiling(8, 1024, 4, 1),
}
TILINGS: dict[tuple[int, int, int], Tiling] = _LLAMA_8B | _SMOLLM2_135M
"""Of ``linear``."""
GATED_TILINGS: dict[tuple[int, int, int], Tiling] = {
    (1, 14336, 4096): Tiling(2, 1024, 4, 1),
    (2, 14336, 4096): Tiling(32, 128, 4, 4),
    (4, 14336, 4096): Tiling(32, 128, 4, 4),
    (8, 14336, 4096): Tiling(32, 128, 4, 4),
    (16, 14336, 4096): Tiling(32, 128, 4, 4),
    (1, 1536, 576): Tiling(2, 1024, 4, 1),
}
"""Of ``gated_linear``, by the width of its output: half the rows of its weights."""
