"""What the engine asks of a device. Owns the border; knows no engine.

A capture is *begun* and *ended* rather than wrapped around a function, because a piecewise graph ends one capture and
begins the next in the middle of a model's forward pass.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from legato.device.facts import DeviceFacts


class DeviceGraph(Protocol):
    """A captured piece of work. Replay repeats it on the same tensors."""

    @property
    def num_nodes(self) -> int:
        """Operations in the graph."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory of this graph alone; what all graphs share is the device's to tell."""
        ...

    def replay(self) -> None:
        """Run the captured work again."""
        ...


class Capture(Protocol):
    """A running capture."""

    def end(self, *, may_outlive: bool = False) -> DeviceGraph:
        """Stop capturing and return the graph.

        ``may_outlive``: tensors made during the capture may be read after a replay, as the segments of a piecewise
        graph do; otherwise one that is still referenced raises GraphCaptureError.
        """
        ...

    def abandon(self) -> None:
        """Stop capturing and discard what was captured."""
        ...


class Event(Protocol):
    """A point in the work that was launched."""

    def wait(self) -> None:
        """Wait until the device has come to this point; return at once where it has."""
        ...


class Device(Protocol):
    """One device: capture, events and memory."""

    @property
    def facts(self) -> DeviceFacts:
        """What decisions about the device depend on."""
        ...

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        ...

    def begin_capture(self) -> Capture:
        """Start capturing all work of this thread.

        During the capture a host read, or a copy of host data, raises GraphCaptureError.
        """
        ...

    def borrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same memory for the work between segments, without a claim on the memory.

        It may be called during a capture. Later captures use the memory once its owners are gone. The result may be
        read at replays only after what writes the memory in that replay, and before anything captured since the owners
        went.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all work that was launched."""
        ...

    def record_event(self) -> Event:
        """Return the present end of the work that was launched."""
        ...

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Run ``work`` and return the milliseconds until the device has done what it launched; the host waits."""
        ...

    def forbid_waiting(self) -> AbstractContextManager[object]:
        """Make each operation within raise that makes the host wait for the device: a check, too dear for serving."""
        ...

    @property
    def has_own_memory(self) -> bool:
        """Whether the device's memory is there for an engine; a CPU shares it with everything else."""
        ...

    def release_unused_memory(self) -> None:
        """Give back what the allocator keeps of freed tensors; memory of graphs stays."""
        ...

    def graph_pool_bytes(self) -> int:
        """Return the memory that graphs share for what they compute on the way."""
        ...

    def memory_total_bytes(self) -> int:
        """Return the memory that the device has."""
        ...

    def memory_free_bytes(self) -> int:
        """Return the memory that is not in use."""
        ...
