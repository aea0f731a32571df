"""A timeline of steps, as Perfetto and chrome://tracing read it. Owns spans and their file; off, it costs nothing.

The form is the JSON array of the Trace Event Format: complete events (``ph`` X) in microseconds, nested by time. The
file is a whole JSON value after every step, so that it can be read while the engine runs and after it was killed. Where
no more can be written, as on a full disk, tracing ends and the engine goes on.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

_END = b"\n]\n"

logger = logging.getLogger("legato.trace")


class Ranges(Protocol):
    """Named ranges that a profiler of the device shows beside its kernels."""

    def push(self, name: str) -> None:
        """Begin a range inside the one that is open."""
        ...

    def pop(self) -> None:
        """End the innermost range."""
        ...


class PlannedStage(Protocol):
    """What a trace says of a step's target."""

    @property
    def requested(self) -> object:
        """Mode that the policy gives it."""
        ...

    @property
    def mode(self) -> object:
        """Mode that it runs in."""
        ...

    @property
    def key(self) -> object | None:
        """Graph that is replayed; None: there is none."""
        ...

    @property
    def reason(self) -> object | None:
        """Why it is less than a full graph; None: it is not."""
        ...

    @property
    def num_tokens_padded(self) -> int:
        """Tokens computed."""
        ...


class Tracer(Protocol):
    """What the engine tells of its steps."""

    def step(self) -> AbstractContextManager[None]:
        """Return the span of one call of the loop; the time since the last one was idle."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return the span of a part of the call."""
        ...

    def planned(self, step: int, num_reqs: int, target: PlannedStage) -> None:
        """Tell what the call launches."""
        ...


class NoTrace:
    """Implements :class:`Tracer` by doing nothing."""

    _nothing = nullcontext()

    def step(self) -> AbstractContextManager[None]:
        """Return what does nothing."""
        return self._nothing

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return what does nothing."""
        return self._nothing

    def planned(self, step: int, num_reqs: int, target: PlannedStage) -> None:
        """Do nothing."""


NO_TRACE = NoTrace()


class TraceFile:
    """One file, shared by the engines of a process that write to the same path: each has a track of its own."""

    _open: ClassVar["WeakValueDictionary[Path, TraceFile]"] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._write(b"[" + _END, 0)
        self._length = 1
        self._num_tracks = 0

    @classmethod
    def at(cls, path: Path) -> "TraceFile":
        """Return the file that is being written at ``path``, or begin one. Raises OSError where that cannot be."""
        path = path.resolve()
        file = cls._open.get(path)
        if file is None:
            file = cls._open[path] = cls(path)
        return file

    def new_track(self, name: str) -> int:
        """Return the number of a new track with this name."""
        self._num_tracks += 1
        own = {"ph": "M", "pid": os.getpid(), "tid": self._num_tracks}
        self.append(
            [
                own | {"name": "process_name", "args": {"name": "legato"}},
                own | {"name": "thread_name", "args": {"name": name}},
            ]
        )
        return self._num_tracks

    def append(self, events: list[dict[str, Any]]) -> None:
        """Write events, and the end of the array behind them; nothing more once that has failed."""
        if self._file.closed:
            return
        separator = b"\n" if self._length == 1 else b",\n"
        text = separator + b",\n".join(json.dumps(event, separators=(",", ":")).encode() for event in events)
        try:
            self._write(text + _END, self._length)
        except OSError as error:
            self._stop(error)
        else:
            self._length += len(text)

    def _write(self, data: bytes, offset: int) -> None:
        while data:  # a disk that is nearly full takes a part
            written = os.pwrite(self._file.fileno(), data, offset)
            data, offset = data[written:], offset + written

    def _stop(self, error: OSError) -> None:
        """Leave a whole file, as it was before the events that it has no room for, and say so."""
        with suppress(OSError):  # there was room for as much before
            self._write(_END, self._length)
            self._file.truncate(self._length + len(_END))
        with suppress(OSError):
            self._file.close()  # whoever deletes the file has its room back
        logger.warning(
            "tracing has stopped after %d bytes, the engine goes on: %s: %s",
            self._length + len(_END),
            self._path,
            error.strerror or error,
        )


class StepTrace:
    """Implements :class:`Tracer` for one engine: into ``file``, into the profiler's ``ranges``, or both."""

    def __init__(self, name: str, file: TraceFile | None, ranges: Ranges | None = None) -> None:
        self._file = file
        self._ranges = ranges
        self._track = 0 if file is None else file.new_track(name)
        self._events: list[dict[str, Any]] = []
        self._planned: dict[str, Any] = {}
        self._ended_ns: int | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Trace one call of the loop, with what it launched; one that launched nothing only collected."""
        begun_ns = time.perf_counter_ns()
        if self._ended_ns is not None:
            self._add("idle", self._ended_ns, begun_ns)
        self._planned = {}
        self._push("step")
        try:
            yield
        finally:
            self._pop()
            self._ended_ns = time.perf_counter_ns()
            self._add("step" if self._planned else "collect", begun_ns, self._ended_ns, self._planned)
            if self._file is not None:
                self._file.append(sorted(self._events, key=lambda event: (event["ts"], -event["dur"])))
            self._events.clear()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Trace a part of the call."""
        self._push(name)
        begun_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._add(name, begun_ns, time.perf_counter_ns())
            self._pop()

    def planned(self, step: int, num_reqs: int, target: PlannedStage) -> None:
        """Note what the call launches."""
        self._planned = {
            "step": step,
            "requested": str(target.requested),
            "mode": str(target.mode),
            "key": None if target.key is None else str(target.key),
            "reason": None if target.reason is None else str(target.reason),
            "num_reqs": num_reqs,
            "num_tokens_padded": target.num_tokens_padded,
        }

    def _add(self, name: str, begun_ns: int, ended_ns: int, details: dict[str, Any] | None = None) -> None:
        event = {
            "name": name,
            "ph": "X",
            "ts": begun_ns / 1e3,
            "dur": (ended_ns - begun_ns) / 1e3,
            "pid": os.getpid(),
            "tid": self._track,
        }
        self._events.append(event | {"args": details} if details else event)

    def _push(self, name: str) -> None:
        if self._ranges is not None:
            self._ranges.push(name)

    def _pop(self) -> None:
        if self._ranges is not None:
            self._ranges.pop()
