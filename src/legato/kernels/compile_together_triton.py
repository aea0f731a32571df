# mypy: disable-error-code="import-not-found, no-any-return"
"""Compiling kernels at once on all cores, not each at its first launch. Owns what a launch does in the meantime."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

import triton

_MOST_THREADS = 16
"""A fifth of compiling is Python's own, in which threads take turns: more of them wait for each other."""


def can_compile_together() -> bool:
    """Return whether this release of Triton compiles in threads, and compiles at all."""
    return hasattr(triton, "AsyncCompileMode") and not triton.knobs.runtime.interpret


@contextmanager
def compiled_together(told: Callable[[int, int], None]) -> Iterator[None]:
    """Within, a launch asks for its kernel to be compiled and does not run it; on leaving, all kernels are there.

    ``told`` is given (kernels compiled, kernels asked for), in some thread. A kernel that cannot be compiled says so at
    its first launch after that. For one thread that launches; :func:`can_compile_together` must hold.
    """
    with _Compilers(told) as compilers, triton.AsyncCompileMode(compilers, ignore_errors=True), _without_launches():
        yield


class _Compilers(ThreadPoolExecutor):
    """Threads that compile."""

    def __init__(self, told: Callable[[int, int], None]) -> None:
        super().__init__(min(_MOST_THREADS, os.cpu_count() or 1))
        self._told = told
        self._counting = Lock()
        self._asked = self._done = 0
        self._launchers: dict[tuple[str, ...], Any] = {}

    def submit(self, compilation: Callable[[], Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Compile a kernel, and the C function that launches it."""
        self._asked += 1
        future = super().submit(self._with_launcher, compilation)
        future.add_done_callback(self._count)
        return future

    def _with_launcher(self, compilation: Callable[[], Any]) -> Any:
        kernel = compilation()
        # A launcher depends on the types of the arguments alone, which many kernels have in common.
        if self._launchers.setdefault(tuple(kernel.src.signature.values()), kernel) is kernel:
            triton.runtime.driver.active.launcher_cls(kernel.src, kernel.metadata)  # stays in the cache on disk
        return kernel

    def _count(self, _: Future[Any]) -> None:
        with self._counting:
            self._done += 1
            self._told(self._done, self._asked)


@contextmanager
def _without_launches() -> Iterator[None]:
    run = triton.JITFunction.run

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return run(kernel, *arguments, grid=grid, warmup=True, **options)

    triton.JITFunction.run = compile_only
    try:
        yield
    finally:
        triton.JITFunction.run = run
