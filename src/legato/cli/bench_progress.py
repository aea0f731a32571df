"""Bars over measurements. Owns that nothing draws while a clock runs: a step that is told draws, and no thread does."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_MIN_SECONDS = 0.5


@contextmanager
def measuring(console: Console, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar of ``total`` steps; yields the function to tell (done, what is next)."""
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        auto_refresh=False,  # a thread that draws would take turns with the host's part of the steps
    ) as progress:
        task = progress.add_task("", total=total)
        drawn = 0.0

        def report(done: int, description: str = "") -> None:
            nonlocal drawn
            progress.update(task, completed=done, description=description)
            if time.monotonic() - drawn > _MIN_SECONDS:
                progress.refresh()
                drawn = time.monotonic()

        yield report
