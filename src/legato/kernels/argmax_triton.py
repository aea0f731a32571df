# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.argmax`: a row is split over programs, the last of which compares their finds.

A find is one integer, ordered as the values are and, where these are equal, against the indices: the largest integer is
the find of the row, in whatever order they are compared.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.split_arrival_triton import arrive
from legato.kernels.split_workspace import shared_workspace

_BLOCK = 4096
_NUM_WARPS = 8
_MAX_SPLITS = 64
_PROGRAMS = 1024
"""Enough for every multiprocessor to have several; with more rows than that, a row has one program."""


@triton.jit
def _give(find: tl.tensor, names: tl.tensor, place: tl.tensor, NAMED: tl.constexpr) -> None:
    """Store the index of ``find``, or what it is called."""
    index = 0x7FFFFFFF - (find & 0x7FFFFFFF)
    if NAMED:
        index = tl.load(names + index)
    tl.store(place, index)


@triton.jit
def _argmax_kernel(
    values: tl.tensor,
    names: tl.tensor,
    out: tl.tensor,
    finds: tl.tensor,
    counters: tl.tensor,
    row_stride: tl.tensor,
    SIZE: tl.constexpr,
    SPLITS: tl.constexpr,
    NAMED: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    SHARE: tl.constexpr = (SIZE + SPLITS * BLOCK - 1) // (SPLITS * BLOCK) * BLOCK
    row, split = tl.program_id(0), tl.program_id(1)
    begin = split * SHARE
    index = begin + tl.arange(0, BLOCK)
    place = values + row.to(tl.int64) * row_stride + index
    best = tl.load(place, mask=index < SIZE, other=float("-inf")).to(tl.float32)
    best_index = index
    for start in tl.range(BLOCK, SHARE, BLOCK, num_stages=3):
        value = tl.load(place + start, mask=index < SIZE - start, other=float("-inf")).to(tl.float32)
        better = (value > best) | ((value != value) & (best == best))
        best = tl.where(better, value, best)
        best_index = tl.where(better, index + start, best_index)
    bits = tl.where(best == 0.0, 0.0, best).to(tl.int32, bitcast=True)  # zeros are equal, whatever their sign
    rank = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    rank = tl.where(best != best, 0x7FFFFFFF, rank)
    find = tl.max((rank.to(tl.int64) << 32) | (0x7FFFFFFF - best_index).to(tl.int64), 0)
    if SPLITS > 1:
        tl.store(finds + row * SPLITS + split, find)
        if arrive(counters + row, SPLITS):
            every = tl.load(finds + row * SPLITS + tl.arange(0, SPLITS), cache_modifier=".cg")
            _give(tl.max(every, 0), names, out + row, NAMED)
    else:
        _give(find, names, out + row, NAMED)


def argmax(values: torch.Tensor, names: torch.Tensor | None = None, out: torch.Tensor | None = None) -> torch.Tensor:
    """Map ``values`` [num_rows, size] to [num_rows] int64."""
    num_rows, size = values.shape
    if out is None:
        out = torch.empty(num_rows, dtype=torch.int64, device=values.device)
    assert values.stride(1) == 1 and out.is_contiguous() and (names is None or names.is_contiguous())
    if num_rows == 0:
        return out
    splits = split_count(num_rows, size)
    workspace = shared_workspace(values.device)
    workspace.check(blocks=num_rows, splits=splits, elements=2)
    _argmax_kernel[(num_rows, splits)](
        values,
        out if names is None else names,
        out,
        workspace.partial.view(torch.int64),
        workspace.counters,
        values.stride(0),
        SIZE=size,
        SPLITS=splits,
        NAMED=names is not None,
        BLOCK=_BLOCK,
        **early_start(num_rows),
        num_warps=_NUM_WARPS,
    )
    return out


def split_count(num_rows: int, size: int) -> int:
    """Return into how many parts each row is split: a power of two, so that few kernels serve all batches."""
    most = min(_MAX_SPLITS, triton.cdiv(size, _BLOCK), max(1, _PROGRAMS // num_rows))
    return 1 << (most.bit_length() - 1)
