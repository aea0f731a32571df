"""Work of the host inside what a device runs by itself. Owns which operations that is, and refuses them as they come.

What needs the host is what would stop a CUDA capture, or make the host wait for a GPU: reading a tensor, an output
whose shape depends on data, a copy of host data.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from legato.device.program import tensors_in
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
_Refuse = Callable[[OpOverload, tuple[Any, ...]], None]
"""Raises for an operation that may not run."""


class HostReadGuard(TorchFunctionMode):
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

    def __init__(self, refuse: _Refuse) -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, kwargs or {}, self._refuse)


@contextmanager
def forbid_waiting() -> Iterator[None]:
    """Make each operation within raise GraphCaptureError that would make the host wait for a GPU."""
    with HostReadGuard(_HOST_READS | _PAGEABLE_COPIES), _CompositeGuard(_refuse_host_reads):
        yield


def run_as_captured(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation and return its result; raises GraphCaptureError where a capture could not hold it."""
    return _run(func, args, kwargs, _refuse_host_work)


def _run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], refuse: _Refuse) -> Any:
    """Run an operation that is not refused; of a composite one, watch the parts."""
    refuse(func, args)
    if not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func(*args, **kwargs)
    with _CompositeGuard(refuse):
        return func.decompose(*args, **kwargs)


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
