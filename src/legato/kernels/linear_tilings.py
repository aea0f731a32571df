"""Which tiling computes which product of few rows: a table measured on one H200, never tuned while serving.

``benchmarks/fused_kernels.py --tune`` prints it. A shape is absent where torch's own operations are as fast, or where
nobody has measured. Keys are (rows rounded up to a power of two, width of the output, width of the input).
"""

from typing import Literal, NamedTuple

MAX_ROWS = 64


class Tiling(NamedTuple):
    """How a product is cut: each program reads ``block_out`` rows of the weights, ``block_in`` columns at a time."""

    block_out: int
    block_in: int
    num_warps: int
    num_stages: int
    """Depth of the software pipeline; 1: plain loads."""
    block_rows: int = 16
    """Rows of a program, at least 16; for more rows, several programs read the same weights. Unused for one row."""
    splits: int = 1
    """Programs that share the columns of a product, and its end. Unused for one row."""
    norm: Literal["inputs", "weights", "apart"] = "inputs"
    """What is multiplied by the weight of a norm before the product; apart: the norm is a kernel of its own."""


def row_class(num_rows: int) -> int:
    """Return ``num_rows`` rounded up to a power of two."""
    return 1 << (num_rows - 1).bit_length()


_FEW = (2, 4, 8, 16)


def _for_rows(rows: tuple[int, ...], out_size: int, in_size: int, tiling: Tiling) -> dict[tuple[int, int, int], Tiling]:
    return {(each, out_size, in_size): tiling for each in rows}


TILINGS: dict[tuple[int, int, int], Tiling] = (
    # Llama 3.1 8B: attention's output, the second of the feed-forward layer's, logits
    _for_rows((1,), 4096, 4096, Tiling(2, 2048, 4, 1))
    | _for_rows(_FEW, 4096, 4096, Tiling(32, 128, 4, 5, splits=2))
    | _for_rows((1,), 4096, 14336, Tiling(8, 512, 4, 3))
    | _for_rows(_FEW, 4096, 14336, Tiling(32, 128, 4, 5, splits=2))
    | _for_rows((1,), 128256, 4096, Tiling(2, 2048, 4, 1))
    | _for_rows(_FEW, 128256, 4096, Tiling(64, 128, 4, 4))
    # SmolLM2 135M
    | _for_rows((1,), 576, 576, Tiling(2, 1024, 4, 1))
    | _for_rows(_FEW, 576, 576, Tiling(16, 128, 2, 5))
    | _for_rows((32,), 576, 576, Tiling(16, 64, 4, 5))
    | _for_rows((64,), 576, 576, Tiling(16, 64, 4, 5, block_rows=64))
    | _for_rows((1,), 576, 1536, Tiling(2, 2048, 8, 1))
    | _for_rows(_FEW, 576, 1536, Tiling(16, 128, 4, 3, splits=4))
    | _for_rows((64,), 576, 1536, Tiling(16, 64, 4, 9, block_rows=32))
)
"""Of products without a norm before them, whether or not they are added to a residual."""
NORM_TILINGS: dict[tuple[int, int, int], Tiling] = (
    # queries, keys and values of Llama 3.1 8B, then of SmolLM2 135M
    _for_rows((1,), 6144, 4096, Tiling(16, 256, 4, 5))
    | _for_rows((1,), 960, 576, Tiling(2, 1024, 4, 1))
    | _for_rows((2, 4), 960, 576, Tiling(16, 128, 2, 5))
)
"""Of products behind a norm."""
GATED_TILINGS: dict[tuple[int, int, int], Tiling] = (
    # Llama 3.1 8B, then SmolLM2 135M
    _for_rows((1,), 14336, 4096, Tiling(1, 4096, 4, 1))
    | _for_rows((1,), 1536, 576, Tiling(4, 1024, 4, 1))
    | _for_rows(_FEW, 1536, 576, Tiling(16, 128, 2, 5))
)
"""Of gated products, all behind a norm: the output width is that of the product, half the weights' rows."""
