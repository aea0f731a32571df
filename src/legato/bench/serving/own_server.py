"""A server of our own for the time of a measurement: a child process, told of its port and stopped at the end.

Owns the process and its log; knows no option of the engine.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from legato.errors import EngineDeadError

STOP_S = 15.0
LAST_LINES = 15
SERVING = re.compile(r"serving .* at (http://\S+)")
"""The line of a server's log that tells its address."""


@contextmanager
def running_server(command: Sequence[str], report: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Start a server by ``command``, wait until it serves, yield its address, and stop it.

    ``report`` is told each line of its log until it serves. Raises EngineDeadError, with the log's last lines, where
    it ends instead.
    """
    # A session of its own: Ctrl-C in the terminal is for the measurement, which then stops the server.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = _Log(process)
    try:
        with _ending_by_sigterm():
            yield log.address(report)
    finally:
        stop(process, within_s=STOP_S)
        log.reader.join(STOP_S)


@contextmanager
def _ending_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, which stops the server. Only a main thread can ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Log:
    """Reads a process's log to its end, so that it is never blocked by a full pipe."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._serving = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def address(self, report: Callable[[str], None]) -> str:
        last: deque[str] = deque(maxlen=LAST_LINES)
        while (line := self._lines.get()) is not None:
            last.append(line)
            report(line)
            if found := SERVING.search(line):
                return found[1]
        code = self._process.wait()
        raise EngineDeadError("the server did not start", {"found": f"exit status {code}", "output": "\n".join(last)})

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                if not self._serving:
                    self._lines.put(line.rstrip())
                    self._serving = bool(SERVING.search(line))
        self._lines.put(None)


def stop(process: "subprocess.Popen[str]", *, within_s: float) -> None:
    """End a server and its engine, a process group: by SIGTERM, which drains; by SIGKILL where that takes too long.

    A second Ctrl-C, which ends the waiting, leaves no server behind either.
    """
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(within_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
