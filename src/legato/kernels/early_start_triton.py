# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""Kernels that begin while the one before them on the stream still runs (CUDA's programmatic dependent launch, sm90).

Each kernel says at its beginning that the next may start, then waits for the end of the one before it. What lies before
the wait overlaps: the launch itself, and reads of what no kernel writes, as are weights. As every kernel that starts
early also waits, one that has ended had all before it ended; nothing else may be read or written before the wait.
"""

from functools import cache

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ENABLED = False
"""Whether kernels start early where the GPU can."""
_FIRST_ARCHITECTURE = 90


@triton.jit
def wait_for_the_kernel_before(EARLY: tl.constexpr) -> None:
    """Let the next kernel start, and wait until all that the ones before it have written can be read."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


def early_start() -> dict[str, bool]:
    """Return the launch options of a kernel with the parameter ``EARLY``."""
    if ENABLED and _gpu_is_capable():
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}


@cache
def _gpu_is_capable() -> bool:
    target = triton.runtime.driver.active.get_current_target()
    return target.backend == "cuda" and target.arch >= _FIRST_ARCHITECTURE
