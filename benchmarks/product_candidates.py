"""Tilings worth trying for a product of few rows. Owns the lists; times nothing."""

from collections.abc import Collection, Iterator

from product_list import Product

from legato.kernels.linear_tilings import MAX_PLAIN_ROWS, Tiling, row_class


def _tilings(*values: tuple[int, ...]) -> list[Tiling]:
    return [Tiling(*one) for one in values]


NARROW = 2048
"""Up to here a program of one row takes the whole width at once, and several rows have few steps to take."""
ONE_ROW_NARROW = _tilings(
    (1, 1024, 2, 1), (1, 1024, 4, 1), (2, 1024, 2, 1), (2, 1024, 4, 1), (4, 1024, 4, 1), (4, 1024, 8, 1),
    (1, 2048, 4, 1), (2, 2048, 4, 1), (2, 2048, 8, 1), (1, 512, 1, 1), (2, 512, 2, 1), (4, 512, 4, 1),
)  # fmt: skip
ONE_ROW_WIDE = _tilings(
    (4, 2048, 8, 1), (2, 2048, 8, 1), (2, 2048, 4, 1), (1, 4096, 4, 1), (2, 4096, 8, 1), (4, 1024, 4, 1),
    (4, 1024, 4, 3), (8, 512, 4, 3), (8, 512, 4, 5), (8, 256, 1, 1), (16, 256, 4, 5), (4, 512, 2, 1),
    (1, 2048, 4, 1), (1, 4096, 8, 1),
)  # fmt: skip
PLAIN_ROWS_NARROW = _tilings(
    (1, 1024, 2, 1), (2, 1024, 2, 1), (2, 1024, 4, 1), (4, 1024, 4, 1), (1, 1024, 1, 1), (2, 1024, 1, 1),
    (4, 1024, 1, 1), (2, 256, 1, 1), (4, 256, 1, 1), (1, 2048, 4, 1), (2, 2048, 4, 1), (2, 2048, 2, 1),
)  # fmt: skip
PLAIN_ROWS_WIDE = _tilings(
    (1, 4096, 4, 1), (2, 4096, 4, 1), (4, 4096, 4, 1), (2, 2048, 2, 1), (4, 2048, 2, 1), (4, 2048, 4, 1),
    (4, 1024, 2, 1), (8, 1024, 2, 1), (8, 1024, 4, 1), (2, 1024, 1, 1), (4, 1024, 1, 1), (4, 512, 1, 1),
    (8, 512, 1, 1),
)  # fmt: skip
FEW_ROWS_NARROW = _tilings(
    (8, 64, 4, 6), (8, 64, 4, 9), (8, 128, 4, 5), (16, 64, 4, 6), (16, 64, 4, 9), (16, 128, 4, 5), (32, 64, 4, 6),
    (32, 128, 4, 5), (16, 256, 4, 4), (32, 64, 2, 9), (16, 128, 2, 5), (16, 128, 4, 4, 16, 2), (16, 128, 4, 3, 16, 4),
)  # fmt: skip
FEW_ROWS_WIDE = _tilings(
    (16, 256, 4, 4), (32, 128, 4, 5), (32, 256, 4, 4), (64, 128, 4, 4), (128, 64, 4, 5), (32, 128, 4, 5, 16, 2),
    (32, 256, 4, 4, 16, 2), (64, 64, 4, 7, 16, 2), (64, 128, 4, 5, 16, 2), (64, 128, 4, 5, 16, 4),
    (64, 128, 4, 5, 16, 8), (128, 128, 8, 4, 16, 4),
)  # fmt: skip
WEIGHTS_LEFT = [
    Tiling(block_out, block_in, 4, num_stages, splits=splits, left="weights")
    for block_out, block_in, num_stages in ((64, 64, 8), (64, 128, 4), (64, 128, 6), (128, 64, 5), (64, 256, 3))
    for splits in (1, 2, 4)
]
"""Of wide products; a program takes all rows."""
MORE_ROWS_NARROW = _tilings(
    (8, 64, 4, 9, 64), (16, 64, 4, 5, 64), (16, 64, 4, 9, 64), (16, 64, 8, 9, 64), (16, 128, 4, 5, 64),
    (32, 64, 4, 5, 64), (32, 64, 4, 9, 64), (32, 64, 8, 9, 64), (64, 64, 8, 6, 64), (8, 64, 4, 9, 32),
    (16, 64, 4, 5, 32), (16, 64, 4, 9, 32), (16, 128, 4, 5, 32), (32, 64, 4, 9, 32), (32, 64, 8, 9, 32),
    (16, 64, 4, 9, 16), (32, 64, 4, 9, 16), (16, 128, 4, 3, 32, 2), (32, 128, 4, 3, 64, 4),
)  # fmt: skip
MORE_ROWS_WIDE = _tilings(
    (64, 64, 4, 5, 64), (128, 64, 4, 4, 64), (128, 64, 8, 4, 64), (64, 128, 4, 4, 64), (64, 128, 4, 4, 32),
    (32, 128, 4, 5, 32), (128, 64, 4, 5, 32), (64, 128, 4, 4, 32, 2), (64, 64, 4, 5, 64, 2), (64, 128, 4, 4, 64, 2),
    (128, 64, 4, 4, 64, 4),
)  # fmt: skip
MOST_SPLIT = 16384
"""Output width from which a product fills the GPU without being split, and more than 16 rows are left to torch."""


def tuned_rows(product: Product, at: Collection[int]) -> list[int]:
    """Return which of ``at`` to search at, 8 rows before all others that its winners are tried for."""
    most = 64 if product.out_size <= MOST_SPLIT else 16
    return [num_rows for num_rows in (1, 8, 2, 4, 16, 32, 64) if num_rows in at and num_rows <= most]


def candidates(product: Product, num_rows: int) -> list[Tiling]:
    """Return the tilings worth trying: those of the tensor cores for 2, 4 and 16 rows are those for 8."""
    narrow = product.in_size <= NARROW
    if num_rows == 1:
        every = ONE_ROW_NARROW if narrow else ONE_ROW_WIDE
    elif num_rows <= MAX_PLAIN_ROWS:
        plain = PLAIN_ROWS_NARROW if narrow else PLAIN_ROWS_WIDE
        every = [one._replace(block_rows=row_class(num_rows)) for one in plain]
    elif num_rows == 16:
        every = []
    elif num_rows > 16:
        every = MORE_ROWS_NARROW if narrow else MORE_ROWS_WIDE
    else:
        every = FEW_ROWS_NARROW if narrow else FEW_ROWS_WIDE
    if num_rows in (8, 32, 64) and not narrow:
        every = [*every, *(one._replace(block_rows=max(16, num_rows)) for one in WEIGHTS_LEFT)]
    most_out = 64 if product.gated else 128
    fitting = (
        one
        for one in every
        if one.block_in < 2 * product.in_size
        and one.block_out <= most_out
        and one.block_rows <= max(16, num_rows)
        and (one.splits == 1 or product.out_size <= MOST_SPLIT)
    )
    return [form for one in fitting for form in _forms(one, product, num_rows)]


def _forms(tiling: Tiling, product: Product, num_rows: int) -> Iterator[Tiling]:
    """Yield ``tiling`` with each way to apply a norm.

    Tiles of more than 16 rows of inputs are too large to be multiplied; where few rows of a narrow product have their
    norm apart, that takes as long as the product.
    """
    if not product.normed or num_rows == 1:
        yield tiling
        return
    if num_rows <= 16:
        yield tiling
    if not tiling.on_plain_cores(num_rows) and tiling.left == "inputs":
        yield tiling._replace(norm="weights")
    if num_rows > 16 or product.in_size > NARROW:
        yield tiling._replace(norm="apart")
