# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.linear`. Both read each weight once and add up in float32.

One row: a product on the plain cores, each thread keeping its own partial sums until the end. Up to 16 rows: a product
on the tensor cores, whose smallest tile has 16 rows, the missing ones zero. In a gated product each program computes a
block of gates and the ups that belong to them, and writes ``silu(gate) * up``.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.dependent_launch_triton import (
    has_dependent_launch,
    launch_options,
    prefetch,
    start_successor,
    wait_for_predecessors,
)
from legato.kernels.linear_tilings import MAX_ROWS, Tiling
from legato.kernels.silu_mul_triton import silu_times

# Each program draws so much of its weights into the L2 cache while the inputs are being computed. All programs that are
# resident together (some 700 on 132 multiprocessors) must not draw more than the cache holds until it is used.
PREFETCHED_BYTES = 16384
_LINE_BYTES = 128
_ELEMENTS_PER_LINE: tl.constexpr = tl.constexpr(64)  # of a 2-byte dtype


@triton.jit
def _load_weights(place: tl.tensor, inside: tl.tensor, WHOLE: tl.constexpr) -> tl.tensor:
    """Load weights that nobody reads again; ``WHOLE``: the tiles fill the matrix, so that no element is masked."""
    if WHOLE:
        return tl.load(place, eviction_policy="evict_first")
    else:  # noqa: RET505 (Triton needs both branches)
        return tl.load(place, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def _begin(
    weight: tl.tensor,
    rows: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    GATED: tl.constexpr,
    LINES: tl.constexpr,
) -> None:
    """Let the next kernel start, draw the first ``LINES`` cache lines of each row near, and wait for the inputs."""
    start_successor()
    if LINES > 0:
        # Beyond the matrix its last row or column is drawn again.
        columns = tl.minimum(tl.arange(0, LINES) * _ELEMENTS_PER_LINE, IN_SIZE - 1)
        line = weight + tl.minimum(rows, OUT_SIZE - 1).to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
        prefetch(line)
        if GATED:
            prefetch(line + OUT_SIZE * IN_SIZE)
    wait_for_predecessors()


@triton.jit
def _one_row_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DEPENDENT: tl.constexpr,
    PREFETCHED_LINES: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    NUM_STAGES: tl.constexpr,
) -> None:
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    if DEPENDENT:
        _begin(weight, rows, OUT_SIZE, IN_SIZE, GATED, PREFETCHED_LINES)
    columns = tl.arange(0, BLOCK_IN)
    in_rows = rows < OUT_SIZE
    place = weight + rows.to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
    up_place = place + OUT_SIZE * IN_SIZE
    partial = tl.zeros((BLOCK_OUT, BLOCK_IN), dtype=tl.float32)
    up_partial = tl.zeros((BLOCK_OUT, BLOCK_IN), dtype=tl.float32)
    for start in tl.range(0, IN_SIZE, BLOCK_IN, num_stages=NUM_STAGES):
        in_columns = columns < IN_SIZE - start
        inside = in_rows[:, None] & in_columns[None, :]
        x = tl.load(inputs + start + columns, mask=in_columns, other=0.0).to(tl.float32)[None, :]
        partial += _load_weights(place + start, inside, WHOLE).to(tl.float32) * x
        if GATED:
            up_partial += _load_weights(up_place + start, inside, WHOLE).to(tl.float32) * x
    total = tl.sum(partial, axis=1)
    dtype = out.dtype.element_ty
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=in_rows, other=0.0).to(tl.float32)
    if GATED:
        up = tl.sum(up_partial, axis=1)
        if HAS_BIAS:
            up += tl.load(bias + OUT_SIZE + rows, mask=in_rows, other=0.0).to(tl.float32)
        result = silu_times(total.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), dtype)
    else:
        result = total.to(dtype)
    tl.store(out + rows, result, mask=in_rows)


@triton.jit(do_not_specialize=["num_rows"])
def _few_rows_kernel(
    inputs: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    inputs_stride: tl.tensor,
    out_stride: tl.tensor,
    OUT_SIZE: tl.constexpr,
    IN_SIZE: tl.constexpr,
    GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DEPENDENT: tl.constexpr,
    PREFETCHED_LINES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
) -> None:
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)  # of the weights: columns of the output
    if DEPENDENT:
        _begin(weight, rows, OUT_SIZE, IN_SIZE, GATED, PREFETCHED_LINES)
    columns = tl.arange(0, BLOCK_IN)
    tokens = tl.arange(0, BLOCK_ROWS)
    in_rows = rows < OUT_SIZE
    in_tokens = tokens < num_rows
    place = weight + rows.to(tl.int64)[:, None] * IN_SIZE + columns[None, :]
    up_place = place + OUT_SIZE * IN_SIZE
    token_place = inputs + tokens[:, None] * inputs_stride + columns[None, :]
    total = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    up = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    for start in range(0, IN_SIZE, BLOCK_IN):
        in_columns = columns < IN_SIZE - start
        inside = in_rows[:, None] & in_columns[None, :]
        x = tl.load(token_place + start, mask=in_tokens[:, None] & in_columns[None, :], other=0.0)
        total = tl.dot(x, tl.trans(_load_weights(place + start, inside, WHOLE)), total)
        if GATED:
            up = tl.dot(x, tl.trans(_load_weights(up_place + start, inside, WHOLE)), up)
    dtype = out.dtype.element_ty
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=in_rows, other=0.0).to(tl.float32)[None, :]
    if GATED:
        if HAS_BIAS:
            up += tl.load(bias + OUT_SIZE + rows, mask=in_rows, other=0.0).to(tl.float32)[None, :]
        result = silu_times(total.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), dtype)
    else:
        result = total.to(dtype)
    out_place = out + tokens[:, None] * out_stride + rows[None, :]
    tl.store(out_place, result, mask=in_tokens[:, None] & in_rows[None, :])


def linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, tiling: Tiling
) -> None:
    """Write ``inputs @ weight.T + bias`` to ``out`` [num_rows, out_size]."""
    _launch(inputs, weight, bias, out, tiling, gated=False)


def gated_linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, tiling: Tiling
) -> None:
    """Write ``silu(gate) * up`` of the product with ``weight`` [2 * size, in_size] to ``out`` [num_rows, size]."""
    _launch(inputs, weight, bias, out, tiling, gated=True)


def _launch(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    tiling: Tiling,
    *,
    gated: bool,
) -> None:
    num_rows, in_size = inputs.shape
    out_size = out.shape[1]
    assert num_rows <= MAX_ROWS and weight.shape == (out_size * (2 if gated else 1), in_size)
    assert weight.is_contiguous() and inputs.stride(1) == out.stride(1) == 1
    tensors = (inputs, weight, weight if bias is None else bias, out)
    options = launch_options(has_dependent_launch(inputs.device))
    shape = {"OUT_SIZE": out_size, "IN_SIZE": in_size, "GATED": gated, "HAS_BIAS": bias is not None}
    lines = _prefetched_lines(tiling.block_out * (2 if gated else 1), in_size) if options["DEPENDENT"] else 0
    blocks = {"PREFETCHED_LINES": lines, "BLOCK_OUT": tiling.block_out, "BLOCK_IN": tiling.block_in}
    grid = (triton.cdiv(out_size, tiling.block_out),)
    if num_rows == 1:
        stages = {"NUM_STAGES": tiling.num_stages, "num_stages": tiling.num_stages}
        _one_row_kernel[grid](*tensors, **shape, **blocks, **stages, **options, num_warps=tiling.num_warps)
        return
    _few_rows_kernel[grid](
        *tensors,
        num_rows,
        inputs.stride(0),
        out.stride(0),
        **shape,
        **blocks,
        **options,
        BLOCK_ROWS=MAX_ROWS,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )


def _prefetched_lines(rows_per_program: int, in_size: int) -> int:
    """Return how many cache lines of each row are drawn near: a power of two, or 0."""
    lines = min(PREFETCHED_BYTES // (_LINE_BYTES * rows_per_program), in_size // _ELEMENTS_PER_LINE.value)
    return 1 << (lines.bit_length() - 1) if lines else 0
