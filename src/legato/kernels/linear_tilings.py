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
    (1, 6144, 4096): Tiling(8, 512, 4, 5),
    (1, 4096, 4096): Tiling(4, 2048, 8, 1),
    (2, 4096, 4096): Tiling(16, 256, 4, 6),
    (4, 4096, 4096): Tiling(16, 256, 4, 6),
    (8, 4096, 4096): Tiling(16, 256, 4, 6),
    (16, 4096, 4096): Tiling(16, 256, 4, 6),
    (1, 4096, 14336): Tiling(4, 2048, 8, 1),
    (1, 128256, 4096): Tiling(16, 256, 4, 5),
    (2, 128256, 4096): Tiling(64, 128, 4, 4),
    (4, 128256, 4096): Tiling(64, 128, 4, 4),
    (8, 128256, 4096): Tiling(64, 128, 4, 4),
    (16, 128256, 4096): Tiling(64, 128, 4, 4),
}
_SMOLLM2_135M: dict[tuple[int, int, int], Tiling] = {
    (1, 960, 576): Tiling(2, 1024, 4, 1),
    (2, 960, 576): Tiling(32, 128, 4, 5),
    (4, 960, 576): Tiling(32, 128, 4, 5),
    (8, 960, 576): Tiling(32, 128, 4, 5),
    (16, 960, 576): Tiling(32, 128, 4, 5),
    (1, 576, 576): Tiling(4, 1024, 4, 1),
    (2, 576, 576): Tiling(32, 128, 4, 5),
    (4, 576, 576): Tiling(32, 128, 4, 5),
    (8, 576, 576): Tiling(32, 128, 4, 5),
    (16, 576, 576): Tiling(32, 128, 4, 5),
    (1, 576, 1536): Tiling(1, 2048, 4, 1),
    (2, 576, 1536): Tiling(16, 512, 4, 3),
    (4, 576, 1536): Tiling(16, 512, 4, 3),
    (8, 576, 1536): Tiling(16, 512, 4, 3),
    (16, 576, 1536): Tiling(16, 512, 4, 3),
}
TILINGS: dict[tuple[int, int, int], Tiling] = _LLAMA_8B | _SMOLLM2_135M
"""Of ``linear``."""
GATED_TILINGS: dict[tuple[int, int, int], Tiling] = {
    (1, 14336, 4096): Tiling(8, 256, 1, 1),
    (1, 1536, 576): Tiling(1, 1024, 4, 1),
    (2, 1536, 576): Tiling(32, 256, 4, 4),
    (4, 1536, 576): Tiling(32, 256, 4, 4),
    (8, 1536, 576): Tiling(32, 256, 4, 4),
    (16, 1536, 576): Tiling(32, 256, 4, 4),
}
"""Of ``gated_linear``: the output width is that of the product, half the weights' rows."""
