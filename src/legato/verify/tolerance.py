"""Where two tensors first differ by more than they may. Owns the comparison row by row; knows no engine."""

import torch


def row_differences(expected: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Return the largest difference of each row, infinite where only one is a number.  # [num_rows] float32"""
    apart = (expected.float() - given.float()).abs().nan_to_num(nan=float("inf"))
    return apart.flatten(1).amax(dim=1)


def first_row_apart(expected: torch.Tensor, given: torch.Tensor, allowed: float) -> int | None:
    """Return the first row whose largest difference is more than ``allowed``; None: no row's is."""
    rows = (row_differences(expected, given) > allowed).nonzero()
    return int(rows[0]) if len(rows) else None
