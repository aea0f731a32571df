"""The engine process as its parent sees it: how it is begun, and what its end is called. Knows no message."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from legato.config.environment import with_search_path
from legato.errors import EngineDeadError, LegatoError

PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Terminals and service managers signal the whole group; the frontend decides whether running requests are finished."""


def spawn(address: str) -> "subprocess.Popen[bytes]":
    """Begin an engine process whose frontend listens at ``address``."""
    # The child finds modules where this process does; -P keeps its working directory out of that.
    environment = with_search_path(path or str(Path.cwd()) for path in sys.path)
    command = [sys.executable, "-P", "-m", "legato.engine.engine_process", address]
    with _signals_held_back():
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Hold back the signals that end a program, here for a moment, and in a child begun meanwhile until it says so.

    A whole group is signalled at once, and the child must import a lot before it can leave that to its parent.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def death(code: int, cause: LegatoError | None) -> EngineDeadError:
    """Return the error of a process that has ended with ``code``; ``cause``: what it said itself."""
    if cause is not None:
        return EngineDeadError(f"the engine process has ended: {cause.summary}", cause.details)
    found = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
    return EngineDeadError("the engine process has ended", {"found": found, "more": "its last lines on standard error"})


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return str(number)
