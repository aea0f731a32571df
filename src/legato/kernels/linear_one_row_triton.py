# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of a product of one row, on the plain cores: each thread keeps its own partial sums until the end.

In a gated product each program computes a block of gates and the ups that belong to them, and writes
``silu(gate) * up``.
"""

import triton
import triton.language as tl

from legato.kernels.early_start_triton import wait_for_the_kernel_before
from legato.kernels.silu_mul_triton import silu_times
from legato.kernels.streamed_weights_triton import load_weights


@triton.jit
def _add_pairs(first: tl.tensor, second: tl.tensor, more_first: tl.tensor, more_second: tl.tensor) -> tl.tensor:
    return first + more_first, second + more_second


@triton.jit
def _add_triples(
    first: tl.tensor,
    second: tl.tensor,
    third: tl.tensor,
    more_first: tl.tensor,
    more_second: tl.tensor,
    more_third: tl.tensor,
) -> tl.tensor:
    return first + more_first, second + more_second, third + more_third


@triton.jit
def one_row_kernel(
    inputs: tl.tensor,
    norm_weight: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Write ``BLOCK_OUT`` columns of the output."""
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    columns = tl.arange(0, BLOCK_IN)
    in_rows = rows < OUT_SIZE
    place = weight + rows.to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
    up_place = place + OUT_SIZE * IN_SIZE
    partial = tl.zeros((BLOCK_OUT, BLOCK_IN), dtype=tl.float32)
    up_partial = tl.zeros((BLOCK_OUT, BLOCK_IN), dtype=tl.float32)
    squares = tl.zeros((BLOCK_OUT, BLOCK_IN), dtype=tl.float32)
    if BLOCK_IN >= IN_SIZE:
        # All at once: weights do not wait for inputs, which are read as weights lie: no thread needs what others read.
        inside = in_rows[:, None] & (columns < IN_SIZE)[None, :]
        copies = columns[None, :] + 0 * rows[:, None]
        weights = load_weights(place, inside, WHOLE)
        if GATED:
            up_weights = load_weights(up_place, inside, WHOLE)
        if HAS_NORM:
            scale = tl.load(norm_weight + copies, mask=copies < IN_SIZE, other=0.0)
        wait_for_the_kernel_before(EARLY)
        x = tl.load(inputs + copies, mask=copies < IN_SIZE, other=0.0).to(tl.float32)
        if ADDED:
            before = tl.load(out + rows, mask=in_rows, other=0.0).to(tl.float32)
        if HAS_NORM:
            squares = x * x
            x *= scale.to(tl.float32)
        partial = weights.to(tl.float32) * x
        if GATED:
            up_partial = up_weights.to(tl.float32) * x
    else:
        wait_for_the_kernel_before(EARLY)
        if ADDED:
            before = tl.load(out + rows, mask=in_rows, other=0.0).to(tl.float32)
        for start in tl.range(0, IN_SIZE, BLOCK_IN, num_stages=NUM_STAGES):
            in_columns = columns < IN_SIZE - start
            inside = in_rows[:, None] & in_columns[None, :]
            given = tl.load(inputs + start + columns, mask=in_columns, other=0.0)
            if HAS_NORM:
                scale = tl.load(norm_weight + start + columns, mask=in_columns, other=0.0)
                exact = given.to(tl.float32)
                squares += (exact * exact)[None, :]
                x = (exact * scale.to(tl.float32))[None, :]
            else:
                x = given.to(tl.float32)[None, :]
            partial += load_weights(place + start, inside, WHOLE).to(tl.float32) * x
            if GATED:
                up_partial += load_weights(up_place + start, inside, WHOLE).to(tl.float32) * x
    # All sums in one pass: each pass makes threads wait for each other twice.
    if HAS_NORM and GATED:
        total, up, square = tl.reduce((partial, up_partial, squares), 1, _add_triples)
    elif HAS_NORM:
        total, square = tl.reduce((partial, squares), 1, _add_pairs)
    elif GATED:
        total, up = tl.reduce((partial, up_partial), 1, _add_pairs)
    else:
        total = tl.sum(partial, axis=1)
    if HAS_NORM:
        factor = tl.rsqrt(square / IN_SIZE + eps)
        total *= factor
        if GATED:
            up *= factor
    dtype = out.dtype.element_ty
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=in_rows, other=0.0).to(tl.float32)
    if GATED:
        if HAS_BIAS:
            up += tl.load(bias + OUT_SIZE + rows, mask=in_rows, other=0.0).to(tl.float32)
        result = silu_times(total.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), dtype)
    elif ADDED:
        result = (before + total).to(dtype)
    else:
        result = total.to(dtype)
    tl.store(out + rows, result, mask=in_rows)
