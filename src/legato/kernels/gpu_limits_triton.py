# mypy: disable-error-code="import-not-found"
"""What the current GPU can do for a program: kernels were cut for an H200, and other GPUs have less."""

from functools import cache

import triton

_PLENTY = 1 << 30
"""Of the interpreter, which has no shared memory."""
_HOPPER = 90
"""As Triton counts."""


@cache
def shared_memory_bytes() -> int:
    """Return the most shared memory that one program may take."""
    if triton.knobs.runtime.interpret:
        return _PLENTY
    driver = triton.runtime.driver.active
    return int(driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"])


@cache
def has_what_came_with_hopper() -> bool:
    """Return whether kernels can start early and copy tiles of a matrix by one instruction each."""
    if triton.knobs.runtime.interpret:
        return False
    target = triton.runtime.driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= _HOPPER)
