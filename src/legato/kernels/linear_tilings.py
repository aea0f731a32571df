"""How products of few rows are cut. The choice is a table's, measured before and never while serving."""

from typing import Literal, NamedTuple

MAX_ROWS = 64
MAX_PLAIN_ROWS = 4
"""Rows up to which the plain cores can keep up with the memory."""


class Tiling(NamedTuple):
    """How a product is cut: each program reads ``block_out`` rows of the weights, ``block_in`` columns at a time."""

    block_out: int
    block_in: int
    num_warps: int
    num_stages: int
    """Depth of the software pipeline; 1: plain loads."""
    block_rows: int = 16
    """Rows of a program: at least 16 on the tensor cores, where several programs read the same weights for more rows;
    up to ``MAX_PLAIN_ROWS`` on the plain ones. Unused for one row, which is the plain cores'."""
    splits: int = 1
    """Programs that share the columns of a product, and its end. Unused on the plain cores."""
    norm: Literal["inputs", "weights", "apart"] = "inputs"
    """What is multiplied by the weight of a norm before the product; apart: the norm is a kernel of its own."""
    left: Literal["inputs", "weights"] = "inputs"
    """The left factor on the tensor cores. Weights, of at least 64 rows, are copied in bulk to shared memory and read
    there by the multiplication, as GPUs from Hopper on can; others bring them to registers on both ways. Unused on the
    plain cores."""

    def shared_memory_bytes(self, *, normed: bool, gated: bool) -> int:
        """Return what a program on the tensor cores takes at most: its tiles of 2-byte elements, at every stage."""
        copies_of_inputs = 2 if normed and self.norm == "inputs" else 1
        rows = self.block_out * (2 if gated else 1) + self.block_rows * copies_of_inputs
        return 2 * rows * self.block_in * self.num_stages

    def on_plain_cores(self, num_rows: int) -> bool:
        """Return whether ``num_rows`` are multiplied without the tensor cores."""
        return num_rows == 1 or self.block_rows <= MAX_PLAIN_ROWS


def row_class(num_rows: int) -> int:
    """Return ``num_rows`` rounded up to a power of two."""
    return 1 << (num_rows - 1).bit_length()
