"""torch's profiler around whatever a thread runs. Owns one recording at a time; knows nothing of what is recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from legato.errors import RequestError

if TYPE_CHECKING:  # importing it takes seconds, which a process without a model can do without
    import torch


class DeviceProfiler:
    """Records operations and, on a GPU, kernels. To be started and stopped on the thread that runs them."""

    def __init__(self) -> None:
        self._running: torch.profiler.profile | None = None

    def start(self) -> None:
        """Begin a recording; raises RequestError where one is running."""
        import torch

        if self._running is not None:
            raise RequestError("a profile is being recorded already")
        self._running = torch.profiler.profile(activities=torch.profiler.supported_activities())
        self._running.start()

    def stop(self, path: Path) -> None:
        """End the recording and write it for Perfetto; raises RequestError where none is running, or for the file."""
        running, self._running = self._running, None
        if running is None:
            raise RequestError("no profile is being recorded")
        running.stop()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()  # torch only logs that it cannot write
            running.export_chrome_trace(str(path))
        except OSError as error:
            details = {"requested": str(path), "found": error.strerror}
            raise RequestError("the profile cannot be written", details) from error


@contextmanager
def profiled(path: Path) -> Iterator[None]:
    """Record what happens inside."""
    profiler = DeviceProfiler()
    profiler.start()
    try:
        yield
    finally:
        profiler.stop(path)
