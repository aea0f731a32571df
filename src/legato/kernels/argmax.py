"""The index of each row's largest value: what greedy sampling is."""

import torch


def argmax(values: torch.Tensor) -> torch.Tensor:
    """Map ``values`` [num_rows, size], of any float type, to the index of each row's largest, [num_rows] int64.

    Of equal values the first counts, and a value that is not a number is the largest, as in torch.
    """
    if values.is_cuda:
        from legato.kernels import argmax_triton

        return argmax_triton.argmax(values)
    return argmax_reference(values)


def argmax_reference(values: torch.Tensor) -> torch.Tensor:
    """Compute :func:`argmax` with torch alone."""
    return values.argmax(dim=-1)
