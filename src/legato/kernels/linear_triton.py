# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Launches the Triton kernels of :mod:`legato.kernels.linear`. Both read each weight once and add up in float32."""

from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from legato.kernels.early_start_triton import early_start
from legato.kernels.gpu_limits_triton import has_what_came_with_hopper, shared_memory_bytes
from legato.kernels.linear import Norm
from legato.kernels.linear_few_rows_triton import few_rows_kernel
from legato.kernels.linear_plain_cores_triton import OF_A_THREAD, plain_cores_kernel
from legato.kernels.linear_tilings import MAX_ROWS, Tiling
from legato.kernels.split_workspace import shared_workspace
from legato.kernels.streamed_weights_triton import LINE_ELEMENTS

WARP = 32
"""Threads that run together."""
NEAR_LINES = 32
"""Lines of each row of its weights that a program of several rows draws near if it starts early: on an H200, a step of
SmolLM2 135M takes up to 8 % less time so."""


def fits(tiling: Tiling, num_rows: int, *, normed: bool, gated: bool) -> bool:
    """Return whether the current GPU can run it.

    Consumer GPUs have less than half of an H200's shared memory, and those before Hopper copy no tiles in bulk.
    """
    if tiling.on_plain_cores(num_rows):
        return True
    if tiling.left == "weights" and not has_what_came_with_hopper():
        return False
    return tiling.shared_memory_bytes(normed=normed, gated=gated) <= shared_memory_bytes()


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
    constants = {
        "OUT_SIZE": out_size,
        "IN_SIZE": in_size,
        "HAS_NORM": norm is not None,
        "GATED": gated,
        "ADDED": added,
        "HAS_BIAS": bias is not None,
        "BLOCK_OUT": tiling.block_out,
        "BLOCK_IN": tiling.block_in,
        **early_start(num_rows, min(out_size, in_size)),
        "num_warps": tiling.num_warps,
        "num_stages": tiling.num_stages,
    }
    tensors = (inputs, norm_weight, weight, weight if bias is None else bias, out)
    strides = inputs.stride(0), out.stride(0)
    launch = _on_plain_cores if tiling.on_plain_cores(num_rows) else _on_tensor_cores
    launch(tensors, eps, num_rows, strides, tiling, constants)


def _on_plain_cores(
    tensors: tuple[torch.Tensor, ...],
    eps: float,
    num_rows: int,
    strides: tuple[int, int],
    tiling: Tiling,
    constants: dict[str, Any],
) -> None:
    assert num_rows == 1 or num_rows <= tiling.block_rows
    plain_cores_kernel[(triton.cdiv(constants["OUT_SIZE"], tiling.block_out),)](
        *tensors,
        eps,
        num_rows,
        *strides,
        **constants,
        BLOCK_ROWS=1 if num_rows == 1 else tiling.block_rows,
        COPIED=tiling.block_in < OF_A_THREAD.value * WARP * tiling.num_warps,
        NUM_STAGES=tiling.num_stages,
    )


def _on_tensor_cores(
    tensors: tuple[torch.Tensor, ...],
    eps: float,
    num_rows: int,
    strides: tuple[int, int],
    tiling: Tiling,
    constants: dict[str, Any],
) -> None:
    blocks = triton.cdiv(constants["OUT_SIZE"], tiling.block_out)
    share = triton.cdiv(constants["IN_SIZE"], tiling.splits)
    lines = min(NEAR_LINES, triton.next_power_of_2(triton.cdiv(share, LINE_ELEMENTS.value)))
    grid = (blocks, triton.cdiv(num_rows, tiling.block_rows), tiling.splits)
    sums = tiling.block_rows * (tiling.block_out * (2 if constants["GATED"] else 1) + 1)
    workspace = shared_workspace(tensors[0].device)
    workspace.check(blocks=grid[0] * grid[1], splits=tiling.splits, elements=sums)
    inputs, norm_weight, weight, bias, out = tensors
    weights_left = tiling.left == "weights"
    few_rows_kernel[grid](
        inputs,
        norm_weight,
        TensorDescriptor.from_tensor(weight, [tiling.block_out, tiling.block_in]) if weights_left else weight,
        bias,
        out,
        workspace.partial,
        workspace.counters,
        eps,
        num_rows,
        *strides,
        **constants,
        NORM_IN_WEIGHTS=tiling.norm == "weights",
        WEIGHTS_LEFT=weights_left,
        BLOCK_ROWS=tiling.block_rows,
        NEAR_LINES=lines if constants["EARLY"] and not weights_left else 0,
        SPLITS=tiling.splits,
    )
