"""Capture on the CPU: the work runs once and each operation is written down. Owns what becomes of each tensor.

A tensor that exists before the capture is named by reference. A small intermediate keeps its memory between replays; a
large one is a register of the program, which lives from its first use to its last.
"""

import gc
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from legato.device.handed_on import FILLING, HandedOn
from legato.device.host_work import HostReadGuard, run_as_captured
from legato.device.program import Operation, ProgramBuilder, Register, tensors_in
from legato.errors import GraphCaptureError

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
        self._guard = HostReadGuard()
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
        result = run_as_captured(func, args, kwargs)
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
