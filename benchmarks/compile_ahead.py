"""Compiling many kernels at once, into Triton's cache on disk, by processes that launch nothing."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import triton
from kernel_settings import Early, set_early

from legato.kernels import linear_triton, paged_attention_decode_triton

PROCESSES = min(16, os.cpu_count() or 1)
MODULES = (linear_triton, paged_attention_decode_triton)


class Compiler:
    """The processes; what they are given is a launch over tensors without memory, and how early kernels start."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(PROCESSES, context, initializer=_launch_nothing)

    def compile(self, launches: Iterable[Callable[[], object]], early: Iterable[Early]) -> None:
        """Compile each of ``launches`` for each of ``early``.

        What fails is tried, and reported, once more by whoever launches it.
        """
        launches, early = list(launches), list(early)
        futures = [self._pool.submit(_compile, launch, one) for launch in launches for one in early]
        problems = [problem for future in as_completed(futures) if (problem := future.exception())]
        print(f"{len(futures) - len(problems)} of {len(futures)} kernels compiled", flush=True)
        if problems:
            print(f"  {problems[0]!r}"[:400], flush=True)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def _launch_nothing() -> None:
    for module in MODULES:
        for kernel in list(vars(module).values()):
            if isinstance(kernel, triton.JITFunction):
                kernel.run = partial(_without_launch, kernel.run)


def _compile(launch: Callable[[], object], early: Early) -> None:
    set_early(early)
    launch()


def _without_launch(original: Callable[..., object], *arguments: object, **options: object) -> None:
    original(*arguments, **options | {"warmup": True})
