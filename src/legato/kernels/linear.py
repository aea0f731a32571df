"""``x Wᵀ + b`` for few rows, where a product's time is that of reading its weights once.

From one row to ``MAX_ROWS`` the shapes of :mod:`legato.kernels.linear_tilings` have a kernel of our own; all others go
to torch. The choice depends on shapes and dtype alone, so that a captured graph and an eager step take the same kernel.
"""

import torch

from legato.kernels.linear_tilings import GATED_TILINGS, MAX_ROWS, TILINGS, Tiling, row_class
from legato.kernels.silu_mul import silu_mul, silu_mul_reference

_DTYPES = (torch.bfloat16, torch.float16)
_MAX_WEIGHT_FIRST_ROWS = 64
"""Rows up to which a CPU's float32 product is faster with the weight as left factor: up to six times at 2 to 8 rows."""


def linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Map ``inputs`` [num_rows, in_size] to ``inputs @ weight.T + bias`` [num_rows, out_size], into ``out`` if given.

    ``weight`` [out_size, in_size] and ``bias`` [out_size], as torch stores them; sums are taken in float32.
    """
    tiling = _tiling(TILINGS, inputs, weight, weight.shape[0])
    if tiling is None:
        return linear_reference(inputs, weight, bias, out=out)
    from legato.kernels import linear_triton

    if out is None:
        out = inputs.new_empty(inputs.shape[0], weight.shape[0])
    linear_triton.linear(inputs, weight, bias, out, tiling)
    return out


def gated_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Map ``inputs`` [num_rows, in_size] to ``silu(gate) * up`` [num_rows, size] of their product with ``weight``.

    ``weight`` [2 * size, in_size] and ``bias`` [2 * size] hold gates before ups (arXiv 2002.05202).
    """
    tiling = _tiling(GATED_TILINGS, inputs, weight, weight.shape[0] // 2)
    if tiling is None:
        return silu_mul(linear(inputs, weight, bias))
    from legato.kernels import linear_triton

    out = inputs.new_empty(inputs.shape[0], weight.shape[0] // 2)
    linear_triton.gated_linear(inputs, weight, bias, out, tiling)
    return out


def linear_reference(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute :func:`linear` with torch alone."""
    if inputs.device.type == "cpu" and inputs.dtype == torch.float32 and 0 < inputs.shape[0] <= _MAX_WEIGHT_FIRST_ROWS:
        product = _weight_first(inputs, weight)
        result = product.contiguous() if out is None else out.copy_(product)
        return result if bias is None else result.add_(bias)
    # The transposed weight is a view of persistent memory: a graph holds the product alone.
    if bias is None:
        return torch.mm(inputs, weight.t(), out=out)
    return torch.addmm(bias, inputs, weight.t(), out=out)


def _weight_first(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product [num_rows, out_size] with ``weight`` as left factor, a column at a time in memory.

    A single row is computed twice: as matrix times matrix it takes half the time of matrix times vector.
    """
    num_rows = inputs.shape[0]
    factor = inputs if num_rows > 1 else torch.cat((inputs, inputs))
    return torch.mm(weight, factor.t()).t()[:num_rows]


def gated_linear_reference(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute :func:`gated_linear` with torch alone."""
    return silu_mul_reference(linear_reference(inputs, weight, bias))


def _tiling(
    table: dict[tuple[int, int, int], Tiling], inputs: torch.Tensor, weight: torch.Tensor, out_size: int
) -> Tiling | None:
    """Return how to compute this product with a kernel of our own, None where torch is to compute it."""
    if not inputs.is_cuda or inputs.dim() != 2 or not 0 < inputs.shape[0] <= MAX_ROWS or inputs.dtype not in _DTYPES:
        return None
    return table.get((row_class(inputs.shape[0]), out_size, weight.shape[1]))
