# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernels of :mod:`legato.kernels.linear`. Both read each weight once and add up in float32.

One row: a product on the plain cores, each thread keeping its own partial sums until the end. Up to 16 rows: a product
on the tensor cores, whose smallest tile has 16 rows, the missing ones zero. In a gated product each program computes a
block of gates and the ups that belong to them, and writes ``silu(gate) * up``.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.linear_tilings import MAX_ROWS, Tiling
from legato.kernels.silu_mul_triton import silu_times


@triton.jit
def _load_weights(place: tl.tensor, inside: tl.tensor, WHOLE: tl.constexpr) -> tl.tensor:
    """Load weights that nobody reads again; ``WHOLE``: the tiles fill the matrix, so that no element is masked."""
    if WHOLE:
        return tl.load(place, eviction_policy="evict_first")
    else:  # noqa: RET505 (Triton needs both branches)
        return tl.load(place, mask=inside, other=0.0, eviction_policy="evict_first")


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
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    NUM_STAGES: tl.constexpr,
) -> None:
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
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
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
) -> None:
    WHOLE: tl.constexpr = OUT_SIZE % BLOCK_OUT == 0 and IN_SIZE % BLOCK_IN == 0
    rows = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)  # of the weights: columns of the output
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
    shape = {"OUT_SIZE": out_size, "IN_SIZE": in_size, "GATED": gated, "HAS_BIAS": bias is not None}
    blocks = {"BLOCK_OUT": tiling.block_out, "BLOCK_IN": tiling.block_in}
    grid = (triton.cdiv(out_size, tiling.block_out),)
    if num_rows == 1:
        stages = {"NUM_STAGES": tiling.num_stages, "num_stages": tiling.num_stages}
        _one_row_kernel[grid](*tensors, **shape, **blocks, **stages, num_warps=tiling.num_warps)
        return
    _few_rows_kernel[grid](
        *tensors,
        num_rows,
        inputs.stride(0),
        out.stride(0),
        **shape,
        **blocks,
        BLOCK_ROWS=MAX_ROWS,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )
