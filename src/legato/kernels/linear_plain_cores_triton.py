# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of a product of up to four rows, on the plain cores, which more rows would keep busier than the memory.

Each thread keeps partial sums of its own, of every row, until the end.

In a gated product each program computes a block of gates and the ups that belong to them, and writes
``silu(gate) * up``.
"""

import triton
import triton.language as tl

from legato.kernels.early_start_triton import wait_for_the_kernel_before
from legato.kernels.linear_finish_triton import finish
from legato.kernels.streamed_weights_triton import load_weights

OF_A_THREAD = tl.constexpr(8)
"""Neighbours in a row that one thread holds: 16 bytes of a 2-byte dtype."""


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
def _by_threads(values: tl.tensor) -> tl.tensor:
    """Add up what each thread holds of ``values`` [a, b, c]: no thread waits for another."""
    a: tl.constexpr = values.shape[0]
    b: tl.constexpr = values.shape[1]
    c: tl.constexpr = values.shape[2]
    return tl.sum(tl.reshape(values, (a, b, c // OF_A_THREAD, OF_A_THREAD)), axis=3)


@triton.jit(do_not_specialize=["num_rows"])
def plain_cores_kernel(
    inputs: tl.tensor,
    norm_weight: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    inputs_stride: tl.tensor,
    out_stride: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    COPIED: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Write ``BLOCK_OUT`` columns of all rows of the output.

    ``COPIED``: inputs are read once for each row of the weights, as those lie: no thread needs what others read.
    """
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    tokens = tl.arange(0, BLOCK_ROWS)
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)  # of the weights: columns of the output
    columns = tl.arange(0, BLOCK_IN)[None, None, :]
    copies = columns + 0 * rows[None, :, None] if COPIED else columns
    in_tokens = tokens < num_rows
    in_rows = rows < OUT_SIZE
    place = weight + rows.to(tl.int64)[None, :, None] * IN_SIZE + columns
    up_place = place + OUT_SIZE * IN_SIZE
    token_place = inputs + tokens[:, None, None] * inputs_stride + copies
    out_place = out + tokens[:, None] * out_stride + rows[None, :]
    out_inside = in_tokens[:, None] & in_rows[None, :]
    before = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=out.dtype.element_ty)
    if BLOCK_IN >= IN_SIZE:
        # All at once: weights do not wait for inputs.
        inside = in_rows[None, :, None] & (columns < IN_SIZE)
        weights = load_weights(place, inside, WHOLE)
        if GATED:
            up_weights = load_weights(up_place, inside, WHOLE)
        if HAS_NORM:
            scale = tl.load(norm_weight + copies, mask=copies < IN_SIZE, other=0.0)
        wait_for_the_kernel_before(EARLY)
        x = tl.load(token_place, mask=in_tokens[:, None, None] & (copies < IN_SIZE), other=0.0).to(tl.float32)
        if ADDED:
            before = tl.load(out_place, mask=out_inside, other=0.0)
        if HAS_NORM:
            squares = x * x
            x *= scale.to(tl.float32)
        partial = weights.to(tl.float32) * x
        if GATED:
            up_partial = up_weights.to(tl.float32) * x
    else:
        partial = tl.zeros((BLOCK_ROWS, BLOCK_OUT, BLOCK_IN // OF_A_THREAD), dtype=tl.float32)
        up_partial = tl.zeros((BLOCK_ROWS, BLOCK_OUT, BLOCK_IN // OF_A_THREAD), dtype=tl.float32)
        squares = tl.zeros((BLOCK_ROWS, BLOCK_OUT if COPIED else 1, BLOCK_IN // OF_A_THREAD), dtype=tl.float32)
        wait_for_the_kernel_before(EARLY)
        if ADDED:
            before = tl.load(out_place, mask=out_inside, other=0.0)
        for start in tl.range(0, IN_SIZE, BLOCK_IN, num_stages=NUM_STAGES):
            in_columns = copies < IN_SIZE - start
            inside = in_rows[None, :, None] & (columns < IN_SIZE - start)
            weights = load_weights(place + start, inside, WHOLE)
            if GATED:
                up_weights = load_weights(up_place + start, inside, WHOLE)
            x = tl.load(token_place + start, mask=in_tokens[:, None, None] & in_columns, other=0.0).to(tl.float32)
            if HAS_NORM:
                scale = tl.load(norm_weight + start + copies, mask=in_columns, other=0.0)
                squares += _by_threads(x * x)
                x *= scale.to(tl.float32)
            partial += _by_threads(weights.to(tl.float32) * x)
            if GATED:
                up_partial += _by_threads(up_weights.to(tl.float32) * x)
    # All sums in one pass: each pass makes threads wait for each other twice.
    every_square = tl.broadcast_to(squares, partial.shape) if HAS_NORM else partial
    if HAS_NORM and GATED:
        total, up, square = tl.reduce((partial, up_partial, every_square), 2, _add_triples)
    elif HAS_NORM:
        total, square = tl.reduce((partial, every_square), 2, _add_pairs)
        up = total
    elif GATED:
        total, up = tl.reduce((partial, up_partial), 2, _add_pairs)
        square = total
    else:
        total = tl.sum(partial, axis=2)
        up = total
        square = total
    # fmt: off
    finish(total, up, square, before, bias, out, out_place, rows, out_inside, eps,
           OUT_SIZE, IN_SIZE, HAS_NORM, GATED, ADDED, HAS_BIAS)
    # fmt: on
