# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Programmatic dependent launch: a kernel starts while the one before it ends, from compute capability 9.0 on.

A kernel first lets its successor start, then does what depends on no other kernel, then waits until all that was
launched before it has ended and can be seen, and only then reads activations or writes anything. As every kernel of a
chain waits so, whoever waits for its predecessor has waited for all. Weights may be touched before, as no kernel of a
step writes them: a product of few rows draws its weights into the L2 cache while its input is still being computed.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda as tl_cuda

_FIRST_CAPABILITY = 90


@triton.jit
def prefetch(place: tl.tensor) -> None:
    """Draw the cache lines at the pointers ``place`` into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [place.to(tl.uint64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def start_successor() -> None:
    """Let the next kernel start; it waits for the end of this one by itself."""
    tl_cuda.gdc_launch_dependents()


@triton.jit
def wait_for_predecessors() -> None:
    """Wait until every kernel launched before has ended."""
    tl_cuda.gdc_wait()


@cache
def has_dependent_launch(device: torch.device) -> bool:
    """Return whether kernels on ``device`` can start early."""
    return device.type == "cuda" and int(triton.runtime.driver.active.get_current_target().arch) >= _FIRST_CAPABILITY


def launch_options(dependent: bool) -> dict[str, bool]:
    """Return what a launch passes beside its arguments: the kernel's own flag, and Triton's where it is set."""
    return {"DEPENDENT": True, "launch_pdl": True} if dependent else {"DEPENDENT": False}
