# mypy: disable-error-code="import-not-found"
"""What the current GPU allows a program: kernels were cut for an H200, and other GPUs have less."""

from functools import cache

import torch
import triton

from legato.kernels.paged_attention_configs import TileConfig, fitted

_PLENTY = 1 << 30
"""Of the interpreter, which has no shared memory."""


@cache
def shared_memory_bytes() -> int:
    """Return the most shared memory that one program may take."""
    if triton.knobs.runtime.interpret:
        return _PLENTY
    driver = triton.runtime.driver.active
    return int(driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"])


def fitting(config: TileConfig, query: torch.Tensor) -> TileConfig:
    """Return ``config`` cut to what the current GPU holds of heads as those of ``query`` [..., head_dim]."""
    return fitted(
        config,
        head_dim=query.shape[-1],
        element_bytes=query.element_size(),
        shared_memory=shared_memory_bytes(),
    )
