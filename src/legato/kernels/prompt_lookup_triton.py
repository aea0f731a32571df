# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Triton kernel of :mod:`legato.kernels.prompt_lookup`: one program per request, over its tokens so far.

A place's score is one integer, ordered by the length of the run that ends there and, where these are equal, by the
place: the largest is the best, in whatever order they are compared.
"""

import torch
import triton
import triton.language as tl

from legato.kernels.early_start_triton import early_start, wait_for_the_kernel_before
from legato.kernels.prompt_lookup import NewTokens

_BLOCK = 2048
_NUM_WARPS = 8
_SIZES = ("history_stride", "tokens_stride", "num_tokens_stride", "capacity")


@triton.jit(do_not_specialize=_SIZES)
def _look_up_kernel(
    history: tl.tensor,
    rows: tl.tensor,
    tokens: tl.tensor,
    num_tokens: tl.tensor,
    last_positions: tl.tensor,
    drafts: tl.tensor,
    history_stride: tl.tensor,
    tokens_stride: tl.tensor,
    num_tokens_stride: tl.tensor,
    capacity: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    NUM_DRAFTS: tl.constexpr,
    BLOCK_DRAFTS: tl.constexpr,
    SHORTEST: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    wait_for_the_kernel_before(EARLY)
    request = tl.program_id(0).to(tl.int64)
    known = history + tl.load(rows + request) * history_stride
    last = tl.load(last_positions + request)
    count = tl.load(num_tokens + request * num_tokens_stride)
    offset = tl.arange(0, BLOCK_WIDTH)
    place = tl.minimum(tl.maximum(last - (count - 1) + offset, 0), capacity - 1)
    new = tl.load(tokens + request * tokens_stride + offset, mask=offset < WIDTH, other=0).to(tl.int32)
    tl.store(known + place, new, mask=(offset < WIDTH) & (offset < count))
    if NUM_DRAFTS > 0:
        tl.debug_barrier()  # all threads read what each has written
        last = tl.minimum(last, capacity - 1)
        best = tl.full((BLOCK,), -1, dtype=tl.int64)
        for start in range(0, last, BLOCK):
            column = start + tl.arange(0, BLOCK).to(tl.int64)
            matches = column < last
            run = tl.zeros((BLOCK,), dtype=tl.int64)
            for back in tl.static_range(LONGEST):
                wanted = tl.load(known + tl.maximum(last - back, 0))
                there = (column < last) & (column >= back)  # not what matches so far: no load waits for another
                matches = matches & there & (tl.load(known + column - back, mask=there, other=0) == wanted)
                run += matches.to(tl.int64)
            best = tl.maximum(best, tl.where(run >= SHORTEST, run * capacity + column, -1))
        score = tl.max(best, axis=0)
        end = tl.where(score >= 0, score % capacity, last - 1)
        index = tl.arange(0, BLOCK_DRAFTS)
        following = tl.maximum(end + 1 + index % (last - end), 0)
        draft = tl.load(known + following, mask=index < NUM_DRAFTS, other=0)
        tl.store(drafts + request * NUM_DRAFTS + index, draft.to(tl.int64), mask=index < NUM_DRAFTS)


def look_up(history: torch.Tensor, new: NewTokens, num_drafts: int, shortest: int, longest: int) -> torch.Tensor:
    """Write new tokens to their rows and return the drafts, in one launch."""
    num_reqs, width = new.tokens.shape
    assert history.stride(1) == new.tokens.stride(1) == 1 and shortest >= 1
    drafts = torch.empty(num_reqs, num_drafts, dtype=torch.int64, device=history.device)
    _look_up_kernel[(num_reqs,)](
        history,
        *new,
        drafts,
        history.stride(0),
        new.tokens.stride(0),
        new.num_tokens.stride(0),
        history.shape[1],
        WIDTH=width,
        BLOCK_WIDTH=triton.next_power_of_2(width),
        NUM_DRAFTS=num_drafts,
        BLOCK_DRAFTS=triton.next_power_of_2(max(1, num_drafts)),
        SHORTEST=shortest,
        LONGEST=longest,
        BLOCK=_BLOCK,
        **early_start(num_reqs),
        num_warps=_NUM_WARPS,
    )
    return drafts
