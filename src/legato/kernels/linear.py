"""``x Wᵀ + b`` with what stands before it (a norm) and behind it (a gate, or the sum with a residual).

With few rows a product's time is that of reading its weights once, and each operation beside it costs a launch. So the
shapes of :mod:`legato.kernels.linear_measured` have a kernel of our own that does all of it; all others go to torch,
one operation after another. The choice depends on shapes and dtype alone, so that a captured graph and an eager step
take the same kernel.

Where the norm is folded in, results are rounded less often. RMSNorm multiplies a row by one factor and by its weight;
the factor is applied to the finished sums, in float32, so that the loop which multiplies can also find it. Of the two
roundings to the dtype (behind the factor, behind the weight) the plain cores have neither; the tensor cores have the
second, of the inputs or, where those are the larger tile, of the product's weights instead.
"""

from typing import NamedTuple

import torch

from legato.kernels.linear_measured import GATED_TILINGS, NORM_TILINGS, TILINGS
from legato.kernels.linear_tilings import MAX_ROWS, Tiling, row_class
from legato.kernels.rms_norm import rms_norm, rms_norm_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference

_DTYPES = (torch.bfloat16, torch.float16)
_MAX_WEIGHT_FIRST_ROWS = 64
"""Rows up to which a CPU's float32 product is faster with the weight as left factor: up to six times at 2 to 8 rows."""


class Norm(NamedTuple):
    """A root mean square normalisation of a product's inputs (arXiv 1910.07467)."""

    weight: torch.Tensor  # [in_size]
    eps: float


def linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    norm: Norm | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Map ``inputs`` [num_rows, in_size] to ``norm(inputs) @ weight.T + bias`` [num_rows, out_size], into ``out``.

    ``weight`` [out_size, in_size] and ``bias`` [out_size], as torch stores them; sums are taken in float32.
    """
    tiling = _tiling(TILINGS if norm is None else NORM_TILINGS, inputs, weight, weight.shape[0], norm)
    if tiling is None:
        if norm is not None:
            return linear(rms_norm(inputs, *norm), weight, bias, out=out)
        return linear_reference(inputs, weight, bias, out=out)
    from legato.kernels import linear_triton

    if norm is not None and tiling.norm == "apart":
        inputs, norm = rms_norm(inputs, *norm), None
    if out is None:
        out = inputs.new_empty(inputs.shape[0], weight.shape[0])
    linear_triton.linear(inputs, weight, bias, out, tiling, norm=norm)
    return out


def add_linear(
    residual: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Add ``inputs @ weight.T + bias`` to ``residual`` [num_rows, out_size] in place, and return it.

    On CUDA the sum is rounded once, on the CPU once more before it is added.
    """
    tiling = _tiling(TILINGS, inputs, weight, weight.shape[0], None)
    if tiling is None:
        return add_linear_reference(residual, inputs, weight, bias)
    from legato.kernels import linear_triton

    linear_triton.linear(inputs, weight, bias, residual, tiling, added=True)
    return residual


def gated_linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, norm: Norm
) -> torch.Tensor:
    """Map ``inputs`` [num_rows, in_size] to ``silu(gate) * up`` [num_rows, size], a product of their norm.

    ``weight`` [2 * size, in_size] and ``bias`` [2 * size] hold gates before ups (arXiv 2002.05202).
    """
    tiling = _tiling(GATED_TILINGS, inputs, weight, weight.shape[0] // 2, norm)
    if tiling is None:
        return silu_mul(linear(inputs, weight, bias, norm=norm))
    from legato.kernels import linear_triton

    given = (rms_norm(inputs, *norm), None) if tiling.norm == "apart" else (inputs, norm)
    out = inputs.new_empty(inputs.shape[0], weight.shape[0] // 2)
    linear_triton.linear(given[0], weight, bias, out, tiling, norm=given[1], gated=True)
    return out


def linear_reference(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    norm: Norm | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute :func:`linear` with torch alone."""
    if norm is not None:
        inputs = rms_norm_reference(inputs, *norm)
    if _weight_goes_first(inputs):
        product = _weight_first(inputs, weight)
        result = product.contiguous() if out is None else out.copy_(product)
        return result if bias is None else result.add_(bias)
    # The transposed weight is a view of persistent memory: a graph holds the product alone.
    if bias is None:
        return torch.mm(inputs, weight.t(), out=out)
    return torch.addmm(bias, inputs, weight.t(), out=out)


def add_linear_reference(
    residual: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute :func:`add_linear` with torch alone."""
    if bias is not None:
        return residual.add_(linear_reference(inputs, weight, bias))
    if inputs.is_cuda:
        return residual.addmm_(inputs, weight.t())
    return residual.add_(_weight_first(inputs, weight) if _weight_goes_first(inputs) else inputs @ weight.t())


def gated_linear_reference(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, norm: Norm
) -> torch.Tensor:
    """Compute :func:`gated_linear` with torch alone."""
    return silu_mul_reference(linear_reference(inputs, weight, bias, norm=norm))


def _weight_goes_first(inputs: torch.Tensor) -> bool:
    num_rows = inputs.shape[0]
    return inputs.device.type == "cpu" and inputs.dtype == torch.float32 and 0 < num_rows <= _MAX_WEIGHT_FIRST_ROWS


def _weight_first(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product [num_rows, out_size] with ``weight`` as left factor, a column at a time in memory.

    A single row is computed twice: as matrix times matrix it takes half the time of matrix times vector.
    """
    num_rows = inputs.shape[0]
    factor = inputs if num_rows > 1 else torch.cat((inputs, inputs))
    return torch.mm(weight, factor.t()).t()[:num_rows]


def _tiling(
    table: dict[tuple[int, int, int], Tiling],
    inputs: torch.Tensor,
    weight: torch.Tensor,
    out_size: int,
    norm: Norm | None,
) -> Tiling | None:
    """Return how to compute this product with a kernel of our own, None where torch is to compute it."""
    if not inputs.is_cuda or inputs.dim() != 2 or not 0 < inputs.shape[0] <= MAX_ROWS or inputs.dtype not in _DTYPES:
        return None
    if norm is not None and inputs.dtype == torch.float16 and inputs.shape[0] > 1:
        return None  # what is not yet divided by its root mean square may exceed float16's range
    num_rows = row_class(inputs.shape[0])
    tiling = table.get((num_rows, out_size, weight.shape[1]))
    if tiling is None:
        return None
    from legato.kernels import linear_triton

    fits = linear_triton.fits(tiling, num_rows, normed=norm is not None, gated=table is GATED_TILINGS)
    return tiling if fits else None
