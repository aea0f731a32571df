"""Which tiling computes which product of few rows: written by ``benchmarks/tune_kernels.py``.

Measured on one NVIDIA H200 with torch 2.11.0 and triton 3.6.0.
A shape is absent where torch's own operations are as fast, or where nobody has measured.
Keys are (rows rounded up to a power of two, width of the output, width of the input).
"""

from legato.kernels.linear_tilings import Tiling

TILINGS: dict[tuple[int, int, int], Tiling] = {
    # llama-3.1-8b: output
    (1, 4096, 4096): Tiling(4, 2048, 8, 1),
    (2, 4096, 4096): Tiling(32, 128, 4, 5, splits=2),
    (4, 4096, 4096): Tiling(64, 128, 4, 6, left="weights"),
    (8, 4096, 4096): Tiling(64, 128, 4, 6, left="weights"),
    (16, 4096, 4096): Tiling(64, 128, 4, 6, left="weights"),
    (32, 4096, 4096): Tiling(64, 128, 4, 6, block_rows=32, splits=2, left="weights"),
    # llama-3.1-8b: down
    (1, 4096, 14336): Tiling(1, 2048, 4, 1),
    (4, 4096, 14336): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (8, 4096, 14336): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (16, 4096, 14336): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (32, 4096, 14336): Tiling(64, 128, 4, 6, block_rows=32, splits=2, left="weights"),
    (64, 4096, 14336): Tiling(64, 128, 4, 4, block_rows=64, splits=2, left="weights"),
    # llama-3.1-8b: lm_head
    (1, 128256, 4096): Tiling(2, 2048, 8, 1),
    (2, 128256, 4096): Tiling(2, 4096, 4, 1, block_rows=2),
    (4, 128256, 4096): Tiling(64, 128, 4, 4, left="weights"),
    (8, 128256, 4096): Tiling(128, 64, 4, 5, left="weights"),
    (16, 128256, 4096): Tiling(128, 64, 4, 5, left="weights"),
    # llama-3.1-8b-eagle3: fc
    (1, 4096, 12288): Tiling(1, 2048, 4, 1),
    (2, 4096, 12288): Tiling(1, 4096, 4, 1, block_rows=2),
    (4, 4096, 12288): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (8, 4096, 12288): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (16, 4096, 12288): Tiling(64, 128, 4, 6, splits=2, left="weights"),
    (32, 4096, 12288): Tiling(64, 128, 4, 6, block_rows=32, splits=2, left="weights"),
    (64, 4096, 12288): Tiling(64, 256, 4, 3, block_rows=64, splits=2, left="weights"),
    # llama-3.1-8b-eagle3: qkv
    (1, 6144, 8192): Tiling(2, 2048, 4, 1),
    (2, 6144, 8192): Tiling(4, 2048, 2, 1, block_rows=2),
    # smollm2-135m: output
    (1, 576, 576): Tiling(2, 1024, 4, 1),
    (2, 576, 576): Tiling(4, 1024, 1, 1, block_rows=2),
    (4, 576, 576): Tiling(2, 1024, 1, 1, block_rows=4),
    (8, 576, 576): Tiling(32, 64, 4, 6),
    (64, 576, 576): Tiling(32, 64, 4, 9, block_rows=64),
    # smollm2-135m: down
    (1, 576, 1536): Tiling(2, 2048, 8, 1),
    (2, 576, 1536): Tiling(2, 2048, 4, 1, block_rows=2),
    (4, 576, 1536): Tiling(2, 2048, 4, 1, block_rows=4),
    (8, 576, 1536): Tiling(16, 128, 4, 3, splits=4),
    (16, 576, 1536): Tiling(16, 128, 4, 3, splits=4),
    (32, 576, 1536): Tiling(16, 64, 4, 9),
    (64, 576, 1536): Tiling(16, 128, 4, 5, block_rows=64),
    # smollm2-135m: lm_head
    (1, 49152, 576): Tiling(4, 1024, 4, 1),
}
"""Of products without a norm before them, whether or not they are added to a residual."""
NORM_TILINGS: dict[tuple[int, int, int], Tiling] = {
    # llama-3.1-8b: qkv
    (1, 6144, 4096): Tiling(2, 2048, 8, 1),
    (2, 6144, 4096): Tiling(2, 4096, 4, 1, block_rows=2, norm="apart"),
    (4, 6144, 4096): Tiling(64, 128, 4, 6, left="weights"),
    (8, 6144, 4096): Tiling(64, 128, 4, 6, norm="apart", left="weights"),
    (16, 6144, 4096): Tiling(64, 128, 4, 6, norm="apart", left="weights"),
    (32, 6144, 4096): Tiling(64, 128, 4, 6, block_rows=32, norm="apart", left="weights"),
    (64, 6144, 4096): Tiling(64, 128, 4, 6, block_rows=64, norm="apart", left="weights"),
    # llama-3.1-8b-eagle3: lm_head
    (1, 32000, 4096): Tiling(2, 4096, 8, 1),
    (2, 32000, 4096): Tiling(4, 4096, 4, 1, block_rows=2),
    (4, 32000, 4096): Tiling(64, 128, 4, 4, left="weights"),
    (8, 32000, 4096): Tiling(64, 128, 4, 4, norm="apart", left="weights"),
    (16, 32000, 4096): Tiling(64, 128, 4, 4, norm="apart", left="weights"),
    # smollm2-135m: qkv
    (1, 960, 576): Tiling(2, 1024, 2, 1),
    (4, 960, 576): Tiling(2, 1024, 1, 1, block_rows=4),
    (16, 960, 576): Tiling(32, 128, 4, 5, norm="weights"),
    (32, 960, 576): Tiling(16, 64, 4, 5, block_rows=32, norm="apart"),
    (64, 960, 576): Tiling(32, 64, 4, 5, block_rows=64, norm="apart"),
}
"""Of products behind a norm."""
GATED_TILINGS: dict[tuple[int, int, int], Tiling] = {
    # llama-3.1-8b: gate_up
    (1, 14336, 4096): Tiling(1, 4096, 8, 1),
    (2, 14336, 4096): Tiling(2, 4096, 4, 1, block_rows=2),
    (4, 14336, 4096): Tiling(64, 256, 4, 3, norm="apart", left="weights"),
    (8, 14336, 4096): Tiling(64, 256, 4, 3, norm="apart", left="weights"),
    (16, 14336, 4096): Tiling(64, 256, 4, 3, norm="apart", left="weights"),
    (32, 14336, 4096): Tiling(64, 128, 4, 4, block_rows=32, norm="apart", left="weights"),
    (64, 14336, 4096): Tiling(64, 128, 4, 4, block_rows=64, norm="apart", left="weights"),
    # smollm2-135m: gate_up
    (1, 1536, 576): Tiling(2, 1024, 4, 1),
    (2, 1536, 576): Tiling(32, 128, 4, 5, norm="weights"),
    (4, 1536, 576): Tiling(2, 1024, 1, 1, block_rows=4),
    (8, 1536, 576): Tiling(16, 128, 2, 5, norm="weights"),
    (16, 1536, 576): Tiling(32, 128, 4, 5, norm="weights"),
    (32, 1536, 576): Tiling(32, 64, 4, 9, block_rows=32, norm="apart"),
    (64, 1536, 576): Tiling(16, 128, 4, 5, block_rows=64, norm="apart"),
}
"""Of gated products, all behind a norm: the output width is that of the product, half the weights' rows."""
