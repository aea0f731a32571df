# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.linear`. Both read each weight once and add up in float32.

One row: a product on the plain cores, each thread keeping its own partial sums until the end. Up to 64 rows: a product
on the tensor cores, whose smallest tile has 16 rows, the missing ones zero; its columns may be split over programs, the
last of which to finish adds up what all of them found, in their order. In a gated product each program computes a block
of gates and the ups that belong to them, and writes ``silu(gate) * up``.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.linear import Norm
from legato.kernels.linear_tilings import MAX_ROWS, Tiling
from legato.kernels.silu_mul_triton import silu_times
from legato.kernels.split_arrival_triton import arrive
from legato.kernels.split_workspace import shared_workspace


@triton.jit
def _load_weights(place: tl.tensor, inside: tl.tensor, WHOLE: tl.constexpr) -> tl.tensor:
    """Load weights that nobody reads again; ``WHOLE``: the tiles fill the matrix, so that no element is masked."""
    if WHOLE:
        return tl.load(place, eviction_policy="evict_first")
    else:  # noqa: RET505 (Triton needs both branches)
        return tl.load(place, mask=inside, other=0.0, eviction_policy="evict_first")


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
def _one_row_kernel(
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
        weights = _load_weights(place, inside, WHOLE)
        if GATED:
            up_weights = _load_weights(up_place, inside, WHOLE)
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
            partial += _load_weights(place + start, inside, WHOLE).to(tl.float32) * x
            if GATED:
                up_partial += _load_weights(up_place + start, inside, WHOLE).to(tl.float32) * x
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


@triton.jit
def _finish(
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
    """Write what follows from the finished sums ``total`` and ``up`` [tokens, rows] and ``squares`` [tokens]."""
    dtype = out.dtype.element_ty
    if HAS_NORM:
        factor = tl.rsqrt(squares / IN_SIZE + eps)[:, None]
        total, up = total * factor, up * factor
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=rows < OUT_SIZE, other=0.0).to(tl.float32)[None, :]
    if GATED:
        if HAS_BIAS:
            up += tl.load(bias + OUT_SIZE + rows, mask=rows < OUT_SIZE, other=0.0).to(tl.float32)[None, :]
        result = silu_times(total.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), dtype)
    elif ADDED:
        result = (before + total).to(dtype)
    else:
        result = total.to(dtype)
    tl.store(out_place, result, mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _few_rows_kernel(
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
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    SPLITS: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    SHARE: tl.constexpr = (IN_SIZE + BLOCK_IN * SPLITS - 1) // (BLOCK_IN * SPLITS) * BLOCK_IN
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0 and SHARE * SPLITS == IN_SIZE
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)  # of the weights: columns of the output
    tokens = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin = tl.program_id(2) * SHARE
    columns = begin + tl.arange(0, BLOCK_IN)
    in_rows = rows < OUT_SIZE
    in_tokens = tokens < num_rows
    place = weight + rows.to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
    up_place = place + OUT_SIZE * IN_SIZE
    token_place = inputs + tokens[:, None] * inputs_stride + columns[None, :]
    norm_place = norm_weight + columns[None, :] + 0 * tokens[:, None]
    out_place = out + tokens[:, None] * out_stride + rows[None, :]
    out_inside = in_tokens[:, None] & in_rows[None, :]
    total = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    up = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    every_square = tl.zeros((BLOCK_ROWS, BLOCK_IN), dtype=tl.float32)
    before = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    wait_for_the_kernel_before(EARLY)
    if ADDED:
        before = tl.load(out_place, mask=out_inside, other=0.0).to(tl.float32)
    for start in range(0, SHARE, BLOCK_IN):
        in_columns = columns < IN_SIZE - start
        inside = in_rows[:, None] & in_columns[None, :]
        x = tl.load(token_place + start, mask=in_tokens[:, None] & in_columns[None, :], other=0.0)
        if HAS_NORM:
            # One copy for each token: a vector alone would be too small for the pipeline's asynchronous loads.
            scale = tl.load(norm_place + start, mask=in_tokens[:, None] & in_columns[None, :], other=0.0)
            exact = x.to(tl.float32)
            every_square += exact * exact
            x = (exact * scale.to(tl.float32)).to(x.dtype)
        total = tl.dot(x, tl.trans(_load_weights(place + start, inside, WHOLE)), total)
        if GATED:
            up = tl.dot(x, tl.trans(_load_weights(up_place + start, inside, WHOLE)), up)
    squares = tl.sum(every_square, axis=1)
    # fmt: off
    if SPLITS == 1:
        _finish(total, up, squares, before, bias, out, out_place, rows, out_inside, eps,
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
            _finish(total, up, squares, before, bias, out, out_place, rows, out_inside, eps,
                    OUT_SIZE, IN_SIZE, HAS_NORM, GATED, ADDED, HAS_BIAS)
    # fmt: on


def linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    tiling: Tiling,
    *,
    norm: Norm | None = None,
    gated: bool = False,
    added: bool = False,
) -> None:
    """Write ``norm(inputs) @ weight.T + bias`` to ``out`` [num_rows, out_size].

    ``gated``: ``weight`` is [2 * out_size, in_size], and ``silu(gate) * up`` is written. ``added``: to what is there.
    """
    num_rows, in_size = inputs.shape
    out_size = out.shape[1]
    assert num_rows <= MAX_ROWS and weight.shape == (out_size * (2 if gated else 1), in_size)
    assert weight.is_contiguous() and inputs.stride(1) == out.stride(1) == 1 and not (gated and added)
    norm_weight, eps = (weight, 0.0) if norm is None else norm
    tensors = (inputs, norm_weight, weight, weight if bias is None else bias, out)
    constants = {
        "OUT_SIZE": out_size,
        "IN_SIZE": in_size,
        "HAS_NORM": norm is not None,
        "GATED": gated,
        "ADDED": added,
        "HAS_BIAS": bias is not None,
        "BLOCK_OUT": tiling.block_out,
        "BLOCK_IN": tiling.block_in,
        **early_start(num_rows),
        "num_warps": tiling.num_warps,
        "num_stages": tiling.num_stages,
    }
    blocks = triton.cdiv(out_size, tiling.block_out)
    if num_rows == 1:
        _one_row_kernel[(blocks,)](*tensors, eps, **constants, NUM_STAGES=tiling.num_stages)
        return
    grid = (blocks, triton.cdiv(num_rows, tiling.block_rows), tiling.splits)
    sums = tiling.block_rows * (tiling.block_out * (2 if gated else 1) + 1)
    workspace = shared_workspace(inputs.device)
    workspace.check(blocks=grid[0] * grid[1], splits=tiling.splits, elements=sums)
    _few_rows_kernel[grid](
        *tensors,
        workspace.partial,
        workspace.counters,
        eps,
        num_rows,
        inputs.stride(0),
        out.stride(0),
        **constants,
        BLOCK_ROWS=tiling.block_rows,
        SPLITS=tiling.splits,
    )
