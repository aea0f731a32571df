"""The CPU as a device with graphs. Owns capture and replay with the semantics of a CUDA graph.

Capture runs the work once and writes down every operation. Host values and Python branches are frozen as a CUDA graph
freezes them; tensors that exist before the capture are named by reference and never copied; what would stop a CUDA
capture stops this one: reading a tensor on the host, an output whose shape depends on data, a copy of host data.
"""

import gc
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from legato.device.facts import CPU, DeviceFacts
from legato.device.handed_on import FILLING, HandedOn
from legato.device.program import Operation, ProgramBuilder, Register, tensors_in
from legato.errors import GraphCaptureError

_HOST_READS = frozenset(
    {"tolist", "numpy", "item", "__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__", "cpu"}
)
"""Tensor methods that read device memory on the host; some of them never reach the dispatcher."""
_HOST_COPIES = frozenset({"aten::lift_fresh", "aten::lift_fresh_copy"})
"""What ``torch.tensor`` of host data becomes."""
_PAGEABLE_COPIES = frozenset({"tensor", "as_tensor"})
"""What copies host data to a GPU from memory that is not page-locked, for which the host waits."""
_DYNAMIC_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
_INDEXING_OPERATIONS = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
"""Their output's shape depends on data only where an index is a mask."""
_READING_OPERATIONS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})


_PYTHON_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)
_ALLOCATIONS = frozenset({"aten::empty.memory_format", "aten::new_empty", "aten::empty_like"})
_PLACED_BYTES = 1 << 16
"""An intermediate up to this size keeps its memory between replays, as all do in a CUDA graph's pool: nothing is
allocated, and views of it are made once. Larger ones are freed after their last use."""
PYTHON_KERNEL = "python_kernel"
"""Attribute of an operator whose kernel is a Python function: a replay need not go through the dispatcher to it."""


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """Implements :class:`~legato.device.protocol.DeviceGraph`."""

    num_nodes: int
    num_bytes: int
    run: Callable[[], None]

    def replay(self) -> None:
        """Run the recorded operations again."""
        # Kernels written in Python read memory as any kernel does; a guard against reads by the host is not for them.
        hidden = torch._C._ExcludeDispatchKeyGuard(_PYTHON_MODES)
        with torch.inference_mode(), torch._C.DisableTorchFunction(), hidden:
            self.run()


class _HostReadGuard(TorchFunctionMode):
    """Refuses reads that bypass the dispatcher, such as ``tolist`` of a CPU tensor."""

    def __init__(self, refused: frozenset[str] = _HOST_READS) -> None:
        super().__init__()
        self._refused = refused

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") in self._refused:
            raise _host_read(f"Tensor.{func.__name__}")
        return func(*args, **(kwargs or {}))


class _CompositeGuard(TorchDispatchMode):
    """Refuses host work inside operations that are made of others; in inference mode they arrive in one piece."""

    def __init__(self, refuse: "_Refuse") -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self._refuse(func, args)
        return _run(func, args, kwargs or {}, self._refuse)


class RecordingCapture(TorchDispatchMode):
    """Implements :class:`~legato.device.protocol.Capture` by writing down each operation as it runs."""

    def __init__(self, handed_on: HandedOn | None = None) -> None:
        super().__init__()
        self._handed_on = handed_on
        self._program = ProgramBuilder()
        self._registers: dict[int, Register] = {}
        self._placed: dict[int, torch.Tensor] = {}  # small intermediates and views of them -> the program's own alias
        self._placed_bytes = 0
        self._intermediates: list[torch.Tensor] = []  # strong: an id must not be reused during the capture
        self._guard = _HostReadGuard()
        self._inference = torch.inference_mode()

    def begin(self) -> "RecordingCapture":
        """Start recording the work of this thread."""
        self._inference.__enter__()
        self._guard.__enter__()
        self.__enter__()
        return self

    def abandon(self) -> None:
        """Stop recording."""
        self.__exit__(None, None, None)
        self._guard.__exit__(None, None, None)
        self._inference.__exit__(None, None, None)

    def end(self, *, may_outlive: bool = False) -> RecordedGraph:
        """Stop recording and compile the graph."""
        self.abandon()
        outliving = self._outliving(collect=not may_outlive)
        if outliving and not may_outlive:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor, _ in outliving)
            raise GraphCaptureError(
                "a tensor allocated during the capture is still referenced after it",
                {"found": shapes, "limit": "results of a graph live in persistent buffers", "options": "copy_ it"},
            )
        with torch.inference_mode():
            for tensor, register in outliving:
                if register is not None:
                    place, copy = torch.ops.aten.alias.default(tensor), torch.ops.aten.copy_.default
                    self._program.append(Operation(copy, "aten::copy_", (place, register), {}, None))
            if self._handed_on is not None:
                self._write_over_released(self._handed_on, [tensor for tensor, _ in outliving])
        kept = sum(tensor.untyped_storage().nbytes() for tensor, register in outliving if register is not None)
        return RecordedGraph(len(self._program.operations), self._placed_bytes + kept, self._program.build())

    def _write_over_released(self, handed_on: HandedOn, outliving: list[torch.Tensor]) -> None:
        """Hand ``outliving`` on; fill what nobody holds any more, now and at every replay."""
        for tensor in outliving:
            handed_on.add(tensor)
        for memory in handed_on.take_released():
            fill = torch.ops.aten.fill_.Scalar
            fill(memory, FILLING)
            self._program.append(Operation(fill, "aten::fill_", (memory, FILLING), {}, None))

    def _outliving(self, *, collect: bool) -> list[tuple[torch.Tensor, Register | None]]:
        """Drop the capture's own references; return the intermediates that somebody else still holds.

        One without a register has a place of its own, which every replay writes again.
        ``collect``: reference cycles, which an exception handled on the way leaves behind, do not count as holders.
        """
        watched = [(weakref.ref(tensor), self._registers.get(id(tensor))) for tensor in self._intermediates]
        self._intermediates.clear()
        self._registers.clear()
        self._placed.clear()
        if collect and any(reference() is not None for reference, _ in watched):
            gc.collect()
        alive = ((reference(), register) for reference, register in watched)
        return [(tensor, register) for tensor, register in alive if tensor is not None]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        _refuse_host_work(func, args)
        result = _run(func, args, kwargs, _refuse_host_work)
        inputs = tensors_in((args, kwargs))
        if self._is_constant_view(func, inputs, result):
            if any(id(tensor) in self._placed for tensor in inputs):
                self._place(tensors_in(result))
            elif self._handed_on is not None:
                for tensor in tensors_in(result):
                    if tensor in self._handed_on:
                        self._handed_on.add(tensor)
        elif not self._record_in_place(func, args, kwargs, inputs, result):
            self._record(func, args, kwargs, inputs, result)
        return result

    def _record_in_place(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        result: Any,
    ) -> bool:
        """Record an operation with a small result as one that writes to the result's memory; say whether it can be."""
        if func.name() in _ALLOCATIONS and result.nbytes <= _PLACED_BYTES:
            self._place([result])
        elif (writing := _writing(func, inputs, result)) is not None:
            self._place([result])
            given = self._encode({**kwargs, "out": result})
            self._program.append(Operation(writing._op, writing.name(), self._encode(args), given, None))
        else:
            return False
        self._placed_bytes += result.nbytes
        return True

    def _record(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        result: Any,
    ) -> None:
        """Record an operation as it was called; what it makes becomes registers."""
        for tensor in tensors_in(result):
            if id(tensor) not in self._registers and not any(tensor is given for given in inputs):
                self._registers[id(tensor)] = Register(len(self._intermediates))
                self._intermediates.append(tensor)
        encoded = self._encode(args), self._encode(kwargs), self._encode(result)
        self._program.append(Operation(_callable(func), func.name(), *encoded))

    def _place(self, tensors: list[torch.Tensor]) -> None:
        """Let the memory of ``tensors`` be theirs at every replay; watch who holds the tensors themselves."""
        for tensor in tensors:
            if id(tensor) not in self._placed:
                self._placed[id(tensor)] = torch.ops.aten.alias.default(tensor)
                self._intermediates.append(tensor)
                if self._handed_on is not None:
                    self._handed_on.add(tensor)

    def _is_constant_view(self, func: OpOverload, inputs: list[torch.Tensor], result: Any) -> bool:
        """Return whether the result is a view of persistent memory, so that it is the same at every replay."""
        outputs = tensors_in(result)
        if func._schema.is_mutable or not outputs or any(id(tensor) in self._registers for tensor in inputs):
            return False
        persistent = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        return all(tensor.untyped_storage().data_ptr() in persistent for tensor in outputs)

    def _encode(self, value: Any) -> Any:
        """Replace intermediates by their registers; persistent tensors stay."""
        if isinstance(value, torch.Tensor):
            if self._handed_on is not None and value in self._handed_on:
                return torch.ops.aten.alias.default(value)  # a graph that reads memory does not hold it
            return self._registers.get(id(value)) or self._placed.get(id(value), value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._encode(item) for item in value)
        if isinstance(value, dict):
            return {name: self._encode(item) for name, item in value.items()}
        return value


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

    @contextmanager
    def forbid_waiting(self) -> Iterator[None]:
        """Make each operation within raise GraphCaptureError that would make the host wait for a GPU."""
        with _HostReadGuard(_HOST_READS | _PAGEABLE_COPIES), _CompositeGuard(_refuse_host_reads):
            yield

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


def _run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], refuse: "_Refuse") -> Any:
    """Run an operation; of a composite one, watch the parts."""
    if not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func(*args, **kwargs)
    with _CompositeGuard(refuse):
        return func.decompose(*args, **kwargs)


_Refuse = Callable[[OpOverload, tuple[Any, ...]], None]
"""Raises for an operation that may not run."""


def _writing(func: OpOverload, inputs: list[torch.Tensor], result: Any) -> OpOverload | None:
    """Return the form of ``func`` that writes to given memory, where it has one and the result is small."""
    if func._schema.is_mutable or not isinstance(result, torch.Tensor) or result.nbytes > _PLACED_BYTES:
        return None
    form: OpOverload | None = getattr(func.overloadpacket, "out", None)
    if form is None or [arg.name for arg in form._schema.arguments[:-1]] != [
        arg.name for arg in func._schema.arguments
    ]:
        return None
    addresses = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return None if result.untyped_storage().data_ptr() in addresses else form


def _callable(func: OpOverload) -> Callable[..., Any]:
    """Return the shortest way to run ``func``: the Python function behind it where it names one, or its binding."""
    return getattr(func, PYTHON_KERNEL, None) or func._op


def _refuse_host_work(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Raise for an operation that needs the host to read device memory, or sends host data to the device."""
    if _name(func) in _HOST_COPIES:
        raise GraphCaptureError(
            "host data was copied to the device during a capture",
            {"found": func.name(), "limit": "a replay would use the old data", "options": "fill a persistent buffer"},
        )
    _refuse_host_reads(func, args)


def _refuse_host_reads(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Raise for an operation that needs the host to read device memory."""
    name = _name(func)
    dynamic = bool(_DYNAMIC_TAGS.intersection(func.tags))
    if name in _INDEXING_OPERATIONS:
        dynamic = any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1:2]))
    if name in _READING_OPERATIONS or dynamic:
        raise _host_read(func.name())


def _name(func: OpOverload) -> str:
    return str(func.name()).split(".")[0]


def _host_read(name: str) -> GraphCaptureError:
    return GraphCaptureError(
        "the host read a tensor during a capture, or where it must not wait",
        {
            "found": name,
            "limit": "a replay cannot ask the host",
            "options": "keep the value on the device, or make it part of the graph key",
        },
    )
