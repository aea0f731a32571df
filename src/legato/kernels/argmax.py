"""The index of each row's largest value: what greedy sampling is."""

import torch


def argmax(values: torch.Tensor, names: torch.Tensor | None = None, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Map ``values`` [num_rows, size], of any float type, to the index of each row's largest, [num_rows] int64.

    Of equal values the first counts, and a value that is not a number is the largest, as in torch. ``names`` [size]
    int64: what is given in place of each index; ``out`` [num_rows] int64, contiguous: where it is written.
    """
    if values.is_cuda:
        from legato.kernels import argmax_triton

        return argmax_triton.argmax(values, names, out)
    return argmax_reference(values, names, out=out)


def argmax_reference(
    values: torch.Tensor, names: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute :func:`argmax` with torch alone."""
    if names is None:
        return torch.argmax(values, dim=-1, out=out)
    return torch.index_select(names, 0, values.argmax(dim=-1), out=out)
