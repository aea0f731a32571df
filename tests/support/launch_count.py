"""How many operations a step launches on a GPU, counted on the CPU by the part of the step that asks for them.

What a function of ``legato.kernels`` with a GPU kernel of its own computes is one launch, as it is there. Views and
allocations launch nothing.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = "legato.kernels."
NO_LAUNCH = frozenset({"aten::empty", "aten::empty_like", "aten::new_empty", "aten::_unsafe_view"})


class LaunchCount(TorchDispatchMode):
    """Counts launches by (part of the step, what is launched)."""

    def __init__(self, parts: Iterable[str]) -> None:
        """``parts``: names of functions; a launch belongs to the innermost of them that it is made in."""
        super().__init__()
        self.launches: Counter[tuple[str, str]] = Counter()
        self._parts = frozenset(parts)
        self._seen: set[FrameType] = set()  # holds the frames, so that none is taken for another

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # in inference mode an operation that is made of others arrives in one piece
                return func.decompose(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        if not func.is_view and name not in NO_LAUNCH:
            self._count(name)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str) -> None:
        part, kernel = "", None
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if _has_kernel(frame.f_globals.get("__name__", "")):
                kernel = frame  # the outermost one stays
            if not part and frame.f_code.co_name in self._parts:
                part = frame.f_code.co_name
            frame = frame.f_back
        if kernel is None:
            self.launches[part, name] += 1
        elif kernel not in self._seen:
            self._seen.add(kernel)
            self.launches[part, kernel.f_code.co_name] += 1


def launches_of(work: Callable[[], object], parts: Iterable[str]) -> Counter[tuple[str, str]]:
    """Return how often each part of ``work`` launches what."""
    with torch.inference_mode(), LaunchCount(parts) as count:
        work()
    return count.launches


@cache
def _has_kernel(module: str) -> bool:
    return module.startswith(KERNELS) and find_spec(f"{module}_triton") is not None
