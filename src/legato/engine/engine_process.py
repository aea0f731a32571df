"""The engine's own process: a core behind a socket. Owns the loop around the core; knows no text and no HTTP.

Started as ``python -m legato.engine.engine_process ADDRESS`` by :class:`~legato.engine.engine_client.EngineClient`. It
holds its end of a pipe on standard input: when the other end closes, the parent is gone and the process ends itself.
"""

import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import zmq
from rich.console import Console

from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.device.profiler import DeviceProfiler
from legato.engine import wire
from legato.engine.engine_spawn import PARENTS_SIGNALS
from legato.errors import LegatoError, RequestError
from legato.flow.request import Request
from legato.flow.request_update import RequestUpdate
from legato.observability.live_view import live_view
from legato.observability.records import StepLog
from legato.observability.stats import EngineStats

LINGER_MS = 2_000
"""How long the last messages may take to leave."""


class Core(Protocol):
    """What the loop needs of an engine core."""

    config: EngineConfig
    step_log: StepLog

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        ...

    def add(self, request: Request) -> None:
        """Take in one request; raises RequestError."""
        ...

    def abort(self, request_ids: Sequence[str]) -> object:
        """Forget requests and free what they hold."""
        ...

    def step(self) -> list[RequestUpdate]:
        """Run one step."""
        ...

    def stats(self) -> EngineStats:
        """Return the counts of now."""
        ...

    def graph_report(self) -> dict[str, object]:
        """Return the graphs as JSON values."""
        ...


Factory = Callable[[EngineOptions, Console], Core]


class EngineLoop:
    """Commands in, steps, events out, until told to shut down."""

    def __init__(self, core: Core, socket: "zmq.Socket[bytes]") -> None:
        self._core = core
        self._socket = socket
        self._profiler = DeviceProfiler()
        self._draining = False
        self._stopped = False

    def run(self) -> None:
        """Serve until shut down; an idle engine blocks on its socket."""
        while not self._stopped and not (self._draining and not self._core.has_work):
            self._drain_inbox(block=not self._core.has_work)
            if self._core.has_work and not self._stopped:
                updates = self._core.step()
                if updates:
                    self._send(wire.Updates(tuple(updates)))

    def _drain_inbox(self, *, block: bool) -> None:
        if block:
            self._socket.poll()
        while not self._stopped and self._socket.poll(0):
            self._handle(wire.decode_command(self._socket.recv()))

    def _handle(self, command: wire.Command) -> None:
        core = self._core
        match command:
            case wire.Add(requests):
                self._add(requests)
            case wire.Abort(request_ids):
                core.abort(request_ids)
            case wire.AskStats(query_id):
                self._send(wire.StatsReply(query_id, core.stats()))
            case wire.AskSteps(query_id, count):
                self._send(wire.StepsReply(query_id, core.step_log.last(count)))
            case wire.AskGraphs(query_id):
                self._send(wire.GraphsReply(query_id, core.graph_report()))
            case wire.AskLive(query_id, seen, most):
                self._send(wire.LiveReply(query_id, live_view(core.stats(), core.step_log, seen=seen, most=most)))
            case wire.StartProfile(query_id):
                self._send(wire.ProfileReply(query_id, _refusal(self._profiler.start)))
            case wire.StopProfile(query_id, path):
                self._send(wire.ProfileReply(query_id, _refusal(lambda: self._profiler.stop(Path(path)))))
            case wire.Shutdown(drain):
                self._draining = True
                self._stopped = not drain

    def _add(self, requests: tuple[Request, ...]) -> None:
        request_ids = tuple(request.request_id for request in requests)
        for number, request in enumerate(requests):
            try:
                self._core.add(request)
            except RequestError as error:
                self._core.abort(request_ids[:number])
                self._send(wire.Rejected(request_ids, wire.ErrorReport.of(error)))
                return

    def _send(self, event: wire.Event) -> None:
        self._socket.send(wire.encode(event))


def _refusal(work: Callable[[], None]) -> wire.ErrorReport | None:
    """Do what a frontend asked for; return why it could not be done."""
    try:
        work()
    except RequestError as error:
        return wire.ErrorReport.of(error)
    return None


def main(address: str) -> int:
    """Serve one frontend at ``address``; return the exit code."""
    _leave_signals_to_the_parent()
    threading.Thread(target=_end_with_the_parent, name="parent-watch", daemon=True).start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.linger = LINGER_MS
    socket.connect(address)
    try:
        return _serve(socket)
    finally:
        socket.close()
        context.term()


def _serve(socket: "zmq.Socket[bytes]") -> int:
    try:
        core = _build(wire.decode_command(socket.recv()))
        gc.collect()
        gc.freeze()  # a collection between two steps need not look through all that the engine is made of
        socket.send(wire.encode(wire.Ready(core.config)))
        EngineLoop(core, socket).run()
        socket.send(wire.encode(wire.Ended()))
    except Exception as error:  # whatever it is, the frontend must hear of it: nobody else can tell its clients
        if not isinstance(error, LegatoError):
            traceback.print_exc()
        socket.send(wire.encode(wire.Fatal(wire.ErrorReport.of(error))))
        return wire.FATAL_CODE
    return 0


def _build(command: wire.Command) -> Core:
    assert isinstance(command, wire.Start), f"the first command is Start, not {command!r}"
    module, _, function = command.factory.partition(":")
    factory = cast(Factory, getattr(importlib.import_module(module), function))
    return factory(command.options, Console(stderr=True))


def _leave_signals_to_the_parent() -> None:
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)  # held back since the start; forgotten now


def _end_with_the_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
