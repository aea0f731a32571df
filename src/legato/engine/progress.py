"""What the terminal shows while an engine is built: decisions, bars for loading and capture, and what they took."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from legato.config.engine import Decision
from legato.engine.memory import MemoryReport
from legato.graphs.captured import CapturedGraph
from legato.graphs.key import GraphKey
from legato.loading.stored_tensor import LoadReport
from legato.runner.graph_capture import DroppedKey

_LOADING_SECONDS = 2.0
"""What kernels that exist take at most."""


class BuildProgress:
    """Shows on a console, or nothing where there is none."""

    def __init__(self, console: Console | None) -> None:
        self._console = console or Console(quiet=True)

    def decisions(self, decisions: Collection[Decision]) -> None:
        """Print each choice that was made for the user."""
        for decision in decisions:
            self._console.print(str(decision), style="dim", markup=False, highlight=False)

    @contextmanager
    def loading(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar of bytes; yields the function to tell (done, total)."""
        with self._bar("loading", DownloadColumn()) as progress:
            task = progress.add_task(name, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def loaded(self, report: LoadReport) -> None:
        """Print what loading took, and tensors that the model has no place for."""
        self._console.print(f"[dim]loaded {report}[/dim]", highlight=False)
        if report.unexpected:
            names = ", ".join(report.unexpected[:3])
            text = f"{len(report.unexpected)} tensors are not used: {names}, …"
            self._console.print(text, style="yellow", markup=False, highlight=False)

    def memory(self, report: MemoryReport) -> None:
        """Print what the device's memory is used for; in yellow, an estimate that was wrong."""
        self._console.print(f"[dim]{report}[/dim]", highlight=False)
        for decision in report.wrong_estimate():
            self._console.print(str(decision), style="yellow", markup=False, highlight=False)

    @contextmanager
    def compiling(self, backend: str) -> Iterator[Callable[[int, int, str], None]]:
        """Show a bar of attention kernels, or lines in a file; yields the function to tell (done, total, the next one).

        What took longer than loading does is told in the end.
        """
        started = time.perf_counter()
        with self._bar(f"compiling {backend} kernels") as progress:
            task = progress.add_task("", total=None)

            def tell(done: int, total: int, kernel: str) -> None:
                progress.update(task, completed=done, total=total, description=kernel)
                if not self._console.is_terminal:
                    text = f"compiling or loading {backend} kernels, {done + 1} of {total}: {kernel}"
                    self._console.print(text, style="dim", markup=False, highlight=False)

            yield tell
        seconds = time.perf_counter() - started
        if seconds > _LOADING_SECONDS:
            self._console.print(f"[dim]compiled {backend} kernels in {seconds:.1f} s[/dim]", highlight=False)

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar of equal things; yields the function to tell (done, total)."""
        with self._bar(what) as progress:
            task = progress.add_task("", total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def compiled(self, report: str) -> None:
        """Print how many pieces were compiled, and what it took."""
        self._console.print(f"[dim]compiled {report}[/dim]", highlight=False)

    @contextmanager
    def capturing(self, total: int) -> Iterator[Callable[[int, int, GraphKey], None]]:
        """Show a bar of graphs; yields the function to tell (done, total, key)."""
        with self._bar("capturing graphs") as progress:
            task = progress.add_task("", total=total)
            yield lambda done, total, key: progress.update(task, completed=done, description=str(key))

    def captured(self, graphs: Collection[CapturedGraph], dropped: Collection[DroppedKey]) -> None:
        """Print how many graphs serve and how long that took; every dropped one with its reason."""
        seconds = sum(graph.capture_ms for graph in graphs) / 1e3
        self._console.print(f"[dim]captured {len(graphs)} graphs in {seconds:.2f} s[/dim]", highlight=False)
        for drop in dropped:
            text = f"dropped {drop.key}: {drop.reason}: {drop.detail}"
            self._console.print(text, style="red", markup=False, highlight=False)

    def _bar(self, what: str, amount: ProgressColumn | None = None) -> Progress:
        """Return a bar that is gone when it is done; ``amount``: how far it is, a number of things unless given."""
        latest = TextColumn("{task.description}")
        columns = (
            TextColumn(what),
            BarColumn(),
            amount or MofNCompleteColumn(),
            TimeElapsedColumn(),
            latest,
        )
        return Progress(*columns, console=self._console, transient=True)
