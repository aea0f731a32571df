# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of a product of up to 64 rows, on the tensor cores.

Their smallest tile has 16 rows, the missing ones zero. Columns may be split over programs, the last of which to finish
adds up what all of them found, in their order. In a gated product each program computes a block of gates and the ups
that belong to them, and writes ``silu(gate) * up``.

With the weights as left factor, the product is computed transposed. Tiles of the weights are then copied in bulk
(``weight`` is a tensor descriptor) and multiplied where they lie, by instructions of whole warp groups.
"""

import triton
import triton.language as tl

from legato.kernels.early_start_triton import wait_for_the_kernel_before
from legato.kernels.linear_finish_triton import finish
from legato.kernels.split_arrival_triton import arrive
from legato.kernels.streamed_weights_triton import LINE_ELEMENTS, draw_near, load_weights


@triton.jit(do_not_specialize=["num_rows"])
def few_rows_kernel(
    inputs: tl.tensor,
    norm_weight: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    counters: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    inputs_stride: tl.tensor,
    out_stride: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    NORM_IN_WEIGHTS: tl.constexpr,
    WEIGHTS_LEFT: tl.constexpr,
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    SPLITS: tl.constexpr,
    NEAR_LINES: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Write ``BLOCK_OUT`` columns of ``BLOCK_ROWS`` rows of the output, or leave what a share of the inputs adds."""
    SHARE: tl.constexpr = (IN_SIZE + BLOCK_IN * SPLITS - 1) // (BLOCK_IN * SPLITS) * BLOCK_IN
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0 and SHARE * SPLITS == IN_SIZE
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)  # of the weights: columns of the output
    tokens = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin = tl.program_id(2) * SHARE
    columns = begin + tl.arange(0, BLOCK_IN)
    in_rows = rows < OUT_SIZE
    in_tokens = tokens < num_rows
    if not WEIGHTS_LEFT:
        place = weight + rows.to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
        up_place = place + OUT_SIZE * IN_SIZE
    token_place = inputs + tokens[:, None] * inputs_stride + columns[None, :]
    norm_place = norm_weight + columns[None, :] + 0 * tokens[:, None]
    out_place = out + tokens[:, None] * out_stride + rows[None, :]
    out_inside = in_tokens[:, None] & in_rows[None, :]
    if WEIGHTS_LEFT:
        total = tl.zeros((BLOCK_OUT, BLOCK_ROWS), dtype=tl.float32)
        up = tl.zeros((BLOCK_OUT, BLOCK_ROWS), dtype=tl.float32)
    else:
        total = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
        up = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    every_square = tl.zeros((BLOCK_ROWS, BLOCK_IN), dtype=tl.float32)
    square_sums = tl.zeros((BLOCK_ROWS, 16), dtype=tl.float32)
    before = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=out.dtype.element_ty)
    if HAS_NORM and NORM_IN_WEIGHTS:
        ones = tl.full((BLOCK_IN, 16), 1.0, inputs.dtype.element_ty)
        scale = tl.load(norm_weight + columns, mask=columns < IN_SIZE, other=0.0)
    if NEAR_LINES > 0:
        line = begin + tl.arange(0, NEAR_LINES) * LINE_ELEMENTS
        near = tl.minimum(rows, OUT_SIZE - 1).to(tl.int64)[:, None] * IN_SIZE + tl.minimum(line, IN_SIZE - 1)[None, :]
        draw_near(weight + near)
        if GATED:
            draw_near(weight + OUT_SIZE * IN_SIZE + near)
    wait_for_the_kernel_before(EARLY)
    if ADDED:
        before = tl.load(out_place, mask=out_inside, other=0.0)
    for start in range(0, SHARE, BLOCK_IN):
        in_columns = columns < IN_SIZE - start
        inside = in_rows[:, None] & in_columns[None, :]
        x = tl.load(token_place + start, mask=in_tokens[:, None] & in_columns[None, :], other=0.0)
        if HAS_NORM and not NORM_IN_WEIGHTS:
            # One copy for each token: a vector alone would be too small for the pipeline's asynchronous copies.
            copies = tl.load(norm_place + start, mask=in_tokens[:, None] & in_columns[None, :], other=0.0)
            exact = x.to(tl.float32)
            every_square += exact * exact
            x = (exact * copies.to(tl.float32)).to(x.dtype)
        if WEIGHTS_LEFT:
            first_row = tl.program_id(0) * BLOCK_OUT
            weights = weight.load([first_row, begin + start])
            if GATED:
                up_weights = weight.load([first_row + OUT_SIZE, begin + start])
        else:
            weights = load_weights(place + start, inside, WHOLE)
            if GATED:
                up_weights = load_weights(up_place + start, inside, WHOLE)
        if HAS_NORM and NORM_IN_WEIGHTS:
            # The tile of weights is the smaller one; inputs go to the matrix units as they were copied.
            factor = scale.to(tl.float32)[None, :]
            weights = (weights.to(tl.float32) * factor).to(x.dtype)
            if GATED:
                up_weights = (up_weights.to(tl.float32) * factor).to(x.dtype)
            # Read a tile ahead: too small for the pipeline's asynchronous copies, it would make each tile wait.
            following = start + BLOCK_IN
            scale = tl.load(norm_weight + following + columns, mask=columns < IN_SIZE - following, other=0.0)
            # Added up by the matrix units: plain sums would need the inputs in another order, which suits neither.
            exact = x.to(tl.float32)
            square_sums = tl.dot((exact * exact).to(x.dtype), ones, square_sums)
        if WEIGHTS_LEFT:
            total = tl.dot(weights, tl.trans(x), total)
            if GATED:
                up = tl.dot(up_weights, tl.trans(x), up)
        else:
            total = tl.dot(x, tl.trans(weights), total)
            if GATED:
                up = tl.dot(x, tl.trans(up_weights), up)
    if WEIGHTS_LEFT:
        total, up = tl.trans(total), tl.trans(up)
    squares = tl.max(square_sums, axis=1) if NORM_IN_WEIGHTS else tl.sum(every_square, axis=1)
    # fmt: off
    if SPLITS == 1:
        finish(total, up, squares[:, None], before, bias, out, out_place, rows, out_inside, eps,
               OUT_SIZE, IN_SIZE, HAS_NORM, GATED, ADDED, HAS_BIAS)
    else:
        TILE: tl.constexpr = BLOCK_ROWS * BLOCK_OUT
        SIZE: tl.constexpr = TILE * (2 if GATED else 1) + BLOCK_ROWS
        block = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        first = partial + block * (SIZE * SPLITS)
        in_tile = tl.arange(0, BLOCK_ROWS)[:, None] * BLOCK_OUT + tl.arange(0, BLOCK_OUT)[None, :]
        in_tokens_sums = tl.arange(0, BLOCK_ROWS) + SIZE - BLOCK_ROWS
        own = first + tl.program_id(2) * SIZE
        tl.store(own + in_tile, total)
        if GATED:
            tl.store(own + TILE + in_tile, up)
        if HAS_NORM:
            tl.store(own + in_tokens_sums, squares)
        if arrive(counters + block, SPLITS):
            total, up, squares = tl.zeros_like(total), tl.zeros_like(up), tl.zeros_like(squares)
            for share in range(SPLITS):
                theirs = first + share * SIZE
                total += tl.load(theirs + in_tile, cache_modifier=".cg")
                if GATED:
                    up += tl.load(theirs + TILE + in_tile, cache_modifier=".cg")
                if HAS_NORM:
                    squares += tl.load(theirs + in_tokens_sums, cache_modifier=".cg")
            finish(total, up, squares[:, None], before, bias, out, out_place, rows, out_inside, eps,
                   OUT_SIZE, IN_SIZE, HAS_NORM, GATED, ADDED, HAS_BIAS)
    # fmt: on
