"""One CUDA GPU as a device. Owns everything that touches ``torch.cuda``.

All captures share one memory pool and one side stream. Graphs of one engine replay one after another and leave nothing
but persistent buffers behind, so that they may use the same memory. The driver keeps memory of its own for each graph,
which it takes in large pieces: what one graph took of it is its share by size.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from legato.device.borrow import unowned
from legato.device.facts import DeviceFacts
from legato.errors import GraphCaptureError

_BYTES_PER_NODE = 2560
"""Of the driver's memory, on an H200 with CUDA 13: 60 graphs of 330 nodes took 54 MiB, 100 of 100 nodes 36 MiB."""
_NODES_PER_GRAPH = 46
"""What a graph takes before its first node, in nodes: 1,000 graphs of a single node took 112 MiB."""
_ENOUGH_BYTES = 64 << 20
"""From here on the pieces in which the driver takes memory no longer matter."""
_CAPTURE_MODE_THREAD_LOCAL = 1
"""``cudaStreamCaptureModeThreadLocal``."""


@dataclass(slots=True)
class DriverMemory:
    """What the driver has taken for graphs so far."""

    size: int = 0
    """Of these graphs, in nodes."""
    num_bytes: int = 0

    def add(self, num_nodes: int, num_bytes: int) -> None:
        """Count a graph."""
        self.size += num_nodes + _NODES_PER_GRAPH
        self.num_bytes += num_bytes

    def share(self, num_nodes: int) -> int:
        """Return the bytes of a graph of so many nodes: as measured, or while little was taken as to be expected."""
        size = num_nodes + _NODES_PER_GRAPH
        if self.num_bytes < _ENOUGH_BYTES:
            return size * _BYTES_PER_NODE
        return self.num_bytes * size // self.size


class CudaGraph:
    """Implements :class:`~legato.device.protocol.DeviceGraph`."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", num_nodes: int, driver_memory: DriverMemory) -> None:
        self._graph = graph
        self._driver_memory = driver_memory
        self.num_nodes = num_nodes

    @property
    def num_bytes(self) -> int:
        """The graph's share of the driver's memory."""
        return self._driver_memory.share(self.num_nodes)

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._graph.replay()


class CudaCapture:
    """Implements :class:`~legato.device.protocol.Capture` with a stream capture."""

    def __init__(self, pool: Any, stream: "torch.cuda.Stream", driver_memory: DriverMemory) -> None:
        self._pool = pool
        self._stream = stream
        self._driver_memory = driver_memory
        self._inference = torch.inference_mode()
        self._context = torch.cuda.stream(stream)
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)

    def begin(self) -> "CudaCapture":
        """Start capturing the work of this thread; other threads may go on using the GPU."""
        self._stream.wait_stream(torch.cuda.current_stream())
        self._inference.__enter__()
        self._context.__enter__()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        return self

    def end(self, *, may_outlive: bool = False) -> CudaGraph:
        """Stop capturing and run the graph once, as the capture itself runs nothing.

        A tensor that outlives the capture keeps its address, so that ``may_outlive`` makes no difference here; the
        recording device refuses what must not be.
        """
        try:
            self._graph.capture_end()
        except RuntimeError as error:
            self._free_allocators()
            raise GraphCaptureError("a CUDA capture failed", {"found": str(error).splitlines()[0]}) from error
        finally:
            self._leave()
        num_nodes = _count_nodes(self._graph)
        free_before = torch.cuda.mem_get_info()[0]  # nothing is allocated from here on but by the driver
        self._graph.instantiate()
        self._graph.replay()
        self._driver_memory.add(num_nodes, max(0, free_before - torch.cuda.mem_get_info()[0]))
        return CudaGraph(self._graph, num_nodes, self._driver_memory)

    def abandon(self) -> None:
        """Stop capturing; a capture that was broken by an error is ended with it."""
        try:
            self._graph.capture_end()
        except RuntimeError:  # the error that broke the capture is being raised already
            self._free_allocators()
        finally:
            self._leave()

    def _free_allocators(self) -> None:
        """Take PyTorch's allocators, of the GPU's memory and of pinned memory, off the pool after a broken capture.

        Releases before 2.12 leave both bound to it, and refuse every later capture. An empty capture that takes the
        place of the broken one has an end that frees them. Later releases have freed them and know of none to end.
        """
        runtime, stream = _runtime(), ctypes.c_void_p(self._stream.cuda_stream)
        runtime.cudaStreamBeginCapture(stream, _CAPTURE_MODE_THREAD_LOCAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the graph is empty
                self._graph.capture_end()
        except RuntimeError:
            runtime.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))
            runtime.cudaGetLastError()  # which the next launch would report, if no capture was left to end

    def _leave(self) -> None:
        self._context.__exit__(None, None, None)
        self._inference.__exit__(None, None, None)
        torch.cuda.current_stream().wait_stream(self._stream)


class CudaEvent:
    """Implements :class:`~legato.device.protocol.Event` on the current stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> None:
        """Wait for the work that was launched before the event."""
        self._event.synchronize()


class CudaDevice:
    """Implements :class:`~legato.device.protocol.Device` on the current GPU."""

    has_own_memory = True

    def __init__(self) -> None:
        index = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(index)
        self.torch_device = torch.device("cuda", index)
        self.facts = DeviceFacts(
            kind="cuda",
            capability=(properties.major, properties.minor),
            name=properties.name,
            num_multiprocessors=properties.multi_processor_count,
        )
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        self._driver_memory = DriverMemory()
        # PyTorch forgets a pool with its last graph, and a later capture into it fails: one small graph stays.
        capture = self.begin_capture()
        torch.zeros(1, device=self.torch_device)
        self._keeper = capture.end()
        self._driver_memory = DriverMemory()  # the first graph pays for what all need

    def begin_capture(self) -> CudaCapture:
        """Start a stream capture."""
        return CudaCapture(self._pool, self._stream, self._driver_memory).begin()

    def borrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same memory that leaves it to the pool."""
        return unowned(tensor)

    def synchronize(self) -> None:
        """Wait for all work that was launched."""
        torch.cuda.synchronize()

    def record_event(self) -> CudaEvent:
        """Return the present end of the current stream's work."""
        return CudaEvent()

    def elapsed_ms(self, work: Callable[[], None]) -> float:
        """Run ``work`` and return the milliseconds of the current stream until its end, by the GPU's clock."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    @contextmanager
    def forbid_waiting(self) -> Iterator[None]:
        """Make each operation within raise RuntimeError that makes the host wait for the GPU."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def release_unused_memory(self) -> None:
        """Give cached memory back to the driver; the graphs' pool is kept by its graphs."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def graph_pool_bytes(self) -> int:
        """Return the size of the pool that all captures share."""
        return sum(
            segment["total_size"]
            for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == tuple(self._pool)
        )

    def memory_total_bytes(self) -> int:
        """Return the GPU's memory."""
        return torch.cuda.mem_get_info()[1]

    def memory_free_bytes(self) -> int:
        """Return the memory that no process uses."""
        return torch.cuda.mem_get_info()[0]


def _count_nodes(graph: "torch.cuda.CUDAGraph") -> int:
    """Return the kernels and copies in a graph, as the CUDA runtime counts them."""
    count = ctypes.c_size_t()
    _runtime().cudaGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
    return count.value


@cache
def _runtime() -> ctypes.CDLL:
    """Return the CUDA runtime that PyTorch has loaded."""
    return ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}")
