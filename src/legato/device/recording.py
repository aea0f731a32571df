"""The CPU as a device with graphs. Owns their semantics, which are those of a CUDA graph.

Host values and Python branches are frozen at capture; tensors that exist before it are named by reference and never
copied; work that needs the host stops it.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

from legato.device.facts import CPU, DeviceFacts
from legato.device.handed_on import HandedOn
from legato.device.host_work import forbid_waiting
from legato.device.recording_capture import RecordingCapture


class PassedEvent:
    """Implements :class:`~legato.device.protocol.Event`: CPU work is done when it returns."""

    def wait(self) -> None:
        """Return at once."""


class RecordingDevice:
    """Implements :class:`~legato.device.protocol.Device` on the CPU."""

    facts: DeviceFacts = CPU
    torch_device: torch.device = torch.device("cpu")
    has_own_memory: bool = False
    writes_over_released: ClassVar[bool] = False
    """Whether memory of segments that nobody holds any more is written over, as on a GPU: a check, for tests."""

    def __init__(self) -> None:
        self._handed_on = HandedOn() if self.writes_over_released else None

    def begin_capture(self) -> RecordingCapture:
        """Start recording."""
        return RecordingCapture(self._handed_on).begin()

    def borrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return another tensor of the same memory, which no capture watches; graphs here own what they hand on."""
        with _disable_current_modes():
            return torch.ops.aten.alias.default(tensor)  # type: ignore[no-any-return]

    def synchronize(self) -> None:
        """Return at once: CPU work is done when it returns."""

    def record_event(self) -> PassedEvent:
        """Return an event that has passed."""
        return PassedEvent()

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Run ``work`` and return the milliseconds by the wall clock."""
        begin = time.perf_counter()
        work()
        return (time.perf_counter() - begin) * 1e3

    def forbid_waiting(self) -> AbstractContextManager[None]:
        """Make each operation within raise GraphCaptureError that would make the host wait for a GPU."""
        return forbid_waiting()

    def release_unused_memory(self) -> None:
        """Return at once: nothing is kept."""

    def graph_pool_bytes(self) -> int:
        """Return 0: each graph has its own memory."""
        return 0

    def memory_total_bytes(self) -> int:
        """Return the machine's memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def memory_free_bytes(self) -> int:
        """Return the memory that no process uses, page cache not counted as used."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
