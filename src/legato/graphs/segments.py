"""Piecewise graphs by breaking: an attention call ends the running capture, runs eagerly, and starts the next one.

Owns the alternation of captured segments and eager calls. No compiler is involved, and any model that calls attention
through its context can be cut this way.

Lifetimes. An eager call is kept with its graph, and must not keep memory: it names what it reads and writes by
:meth:`SegmentedCapture.borrow`. The owner of a tensor is whoever the model's code has it from: as long as that frame
holds it, no later segment is given its memory, and what the frame lets go in segment ``i`` may be written over from
segment ``i`` on. Replays run in the order of the capture, so that an eager call after segment ``i`` reads what that
replay's segments up to ``i`` wrote, if its tensors had owners when it first ran. Two graphs never run at once, and
each writes all that it reads: so memory of one key is that of the next, too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from legato.device.protocol import Capture, Device, DeviceGraph


@dataclass(frozen=True, slots=True)
class EagerCall:
    """Work between two segments, on borrowed tensors, which keep their address."""

    call: Callable[[], None]

    def replay(self) -> None:
        """Run the work."""
        self.call()


class SegmentedCapture:
    """Captures a function, whole or in segments; it calls :meth:`run_eagerly` for what no graph may hold."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._parts: list[DeviceGraph | EagerCall] = []
        self._running: Capture | None = None

    def capture(self, function: Callable[[], None], *, whole: bool) -> tuple[DeviceGraph | EagerCall, ...]:
        """Run ``function`` once and return its segments and eager calls, in order.

        ``whole``: one graph, whose results are all in persistent buffers. Otherwise segments hand tensors on.
        """
        self._running = self._device.begin_capture()
        try:
            function()
        except BaseException:
            if self._running is not None:
                self._running.abandon()
            raise
        self._end_segment(may_outlive=not whole)
        return tuple(self._parts)

    def borrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor`` as an eager call may keep it: its address, not its memory."""
        return self._device.borrow(tensor)

    def run_eagerly(self, call: Callable[[], None]) -> None:
        """End the running segment, run ``call``, and begin the next; ``call`` is kept and holds borrowed tensors."""
        self._end_segment(may_outlive=True)
        call()
        self._parts.append(EagerCall(call))
        self._running = self._device.begin_capture()

    def _end_segment(self, *, may_outlive: bool) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            self._parts.append(running.end(may_outlive=may_outlive))
