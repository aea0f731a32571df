# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""The end of a product of few rows: what its norm, bias, gate or residual make of the sums, in float32."""

import triton
import triton.language as tl

from legato.kernels.silu_mul_triton import silu_times


@triton.jit
def finish(
    total: tl.tensor,
    up: tl.tensor,
    squares: tl.tensor,
    before: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    out_place: tl.tensor,
    rows: tl.tensor,
    inside: tl.tensor,
    eps: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
) -> None:
    """Write what follows from the sums ``total`` and ``up`` [tokens, rows], and ``squares`` [tokens, rows or 1].

    ``up`` and ``before``, what is there already, are not read where nothing is gated or added.
    """
    dtype = out.dtype.element_ty
    if HAS_NORM:
        factor = tl.rsqrt(squares / IN_SIZE + eps)
        total, up = total * factor, up * factor
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=rows < OUT_SIZE, other=0.0).to(tl.float32)[None, :]
    if GATED:
        if HAS_BIAS:
            up += tl.load(bias + OUT_SIZE + rows, mask=rows < OUT_SIZE, other=0.0).to(tl.float32)[None, :]
        result = silu_times(total.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), dtype)
    elif ADDED:
        result = (before.to(tl.float32) + total).to(dtype)
    else:
        result = total.to(dtype)
    tl.store(out_place, result, mask=inside)
