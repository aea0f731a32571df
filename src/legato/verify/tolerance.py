"""How far two computations of one step may be apart. Owns the figures by data type; knows no engine.

Where shapes and kernels are the same, nothing may differ by a bit. Where padding or the mode differs, other kernels
round in another order: values then agree within a share of the largest value.
"""

import torch

RELATIVE_TOLERANCE: dict[str, float] = {"float32": 2e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Data type -> share of the largest value: about ten units in its last place, more where layers add up in float32."""
NEAR_TIE = 2.0
"""Two tokens tie if their scores are this many tolerances apart at most: each of them may move by one."""


def tolerance(dtype: str, largest: float) -> float:
    """Return the allowed difference between values of which the largest is ``largest``."""
    return RELATIVE_TOLERANCE[dtype] * largest


def row_differences(expected: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Return the largest difference of each row, infinite where only one is a number.  # [num_rows] float32"""
    apart = (expected.float() - given.float()).abs().nan_to_num(nan=float("inf"))
    return apart.flatten(1).amax(dim=1)


def first_row_apart(expected: torch.Tensor, given: torch.Tensor, allowed: float) -> int | None:
    """Return the first row whose largest difference is more than ``allowed``; None: no row's is."""
    rows = (row_differences(expected, given) > allowed).nonzero()
    return int(rows[0]) if len(rows) else None
