"""Named ranges for NVIDIA's profilers. Owns the one use of NVTX; on other devices there are none."""

import torch

from legato.device.facts import DeviceFacts


class NvtxRanges:
    """Implements :class:`~legato.observability.trace.Ranges`."""

    def push(self, name: str) -> None:
        """Begin a range."""
        torch.cuda.nvtx.range_push(name)

    def pop(self) -> None:
        """End the innermost range."""
        torch.cuda.nvtx.range_pop()


def nvtx_ranges(device: DeviceFacts) -> NvtxRanges | None:
    """Return ranges that a profiler shows; None where the device has no such profiler."""
    return NvtxRanges() if device.kind == "cuda" else None
