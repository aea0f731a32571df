"""Backends whose kernels are compiled on the user's machine. Owns the border: asked once, before anything is captured.

A backend that does not implement it compiles nothing, or does it unseen within a step.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

CompileProgress = Callable[[int, int, str], None]
"""Told (kernels done, kernels in all, the one that comes next)."""


@runtime_checkable
class CompilingBackend(Protocol):
    """An attention backend that can be told to compile what it will need."""

    def compile_kernels(self, widths: tuple[int, ...], progress: CompileProgress) -> None:
        """Compile or load every kernel for uniform batches of ``widths`` query tokens and for all other batches.

        Raises BackendError, naming the kernel, where one cannot be compiled.
        """
        ...
