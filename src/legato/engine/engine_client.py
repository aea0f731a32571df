"""The frontend's side of the engine process. Owns the process, its socket, and which updates belong to which request.

Knows no text: it sends flow requests and hands out flow updates.
"""

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import zmq
import zmq.asyncio

from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.engine import wire
from legato.engine.engine_spawn import death, spawn
from legato.engine.update_stream import UpdateStream
from legato.errors import EngineDeadError, LegatoError
from legato.flow.request import Request, id_in_use
from legato.flow.request_update import RequestUpdate
from legato.observability.live_view import LiveView
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats

DEFAULT_FACTORY = "legato.engine.bootstrap:build_engine"
LAST_WORD_S = 5.0
"""How long the last message of a process that has ended by itself is waited for: it has been sent."""
LAST_TOKENS_S = 0.1
"""How long what a killed process may have sent is waited for: nobody knows what that is."""
UPDATES_AT_ONCE = 8
"""Handed out before the event loop turns to others: about half a millisecond of streaming."""
MOST_PAUSES = 8
"""Of a step's updates, however many; each costs the loop a turn."""
STOP_S = 5.0
"""How long a process told to end at once may take before it is killed: about one step."""


_Query = wire.AskStats | wire.AskSteps | wire.AskGraphs | wire.AskLive | wire.StartProfile | wire.StopProfile


class EngineClient:
    """One running engine process. To be used from the event loop that started it."""

    config: EngineConfig
    error: EngineDeadError | None = None
    """Why the process has ended, where it was not told to."""

    def __init__(self, process: "subprocess.Popen[bytes]", socket: zmq.asyncio.Socket) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._socket = socket
        self._streams: dict[str, UpdateStream] = {}
        self._queries: dict[int, asyncio.Future[Any]] = {}
        self._query_ids = itertools.count()
        self._ready: asyncio.Future[EngineConfig] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._said_all = asyncio.Event()
        self._cause: LegatoError | None = None
        self._stopping = False
        self._receiver = loop.create_task(self._receive())
        threading.Thread(target=self._wait_for_exit, args=(loop,), name="engine-watch", daemon=True).start()

    @classmethod
    async def start(cls, options: EngineOptions, *, factory: str = DEFAULT_FACTORY) -> "EngineClient":
        """Start the process and wait for its engine; raises whatever error the engine was refused with."""
        folder = tempfile.mkdtemp(prefix="legato-")  # mode 0700: nobody else can connect
        address = f"ipc://{folder}/engine"
        socket = zmq.asyncio.Context().socket(zmq.DEALER)
        socket.set_hwm(0)
        socket.linger = 0
        client = None
        try:
            socket.bind(address)
            client = cls(spawn(address), socket)
            client._send(wire.Start(factory, options))
            client.config = await client._ready
        except BaseException:
            await _discard(client, socket)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # connected or failed: the path has served
        return client

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    @property
    def num_open(self) -> int:
        """Requests without an end so far."""
        return len(self._streams)

    def submit(self, requests: Sequence[Request]) -> UpdateStream:
        """Send requests to the engine, all or none; raises EngineDeadError, or RequestError for an id that is taken."""
        self._check_alive()
        taken = [request.request_id for request in requests if request.request_id in self._streams]
        if taken:
            raise id_in_use(*taken)
        stream = UpdateStream(requests)
        self._send(wire.Add(tuple(requests)))  # first: what cannot be written out must not stay behind as open
        self._streams.update(dict.fromkeys(stream.request_ids, stream))
        return stream

    def abort(self, request_ids: Sequence[str]) -> None:
        """Have requests forgotten before their next step; those that have ended already are passed over."""
        there = tuple(request_id for request_id in request_ids if self._streams.pop(request_id, None) is not None)
        if there and not self._ended.done():
            self._send(wire.Abort(there))

    async def stats(self) -> EngineStats:
        """Return the counts of now; raises EngineDeadError."""
        return cast(EngineStats, await self._ask(wire.AskStats(next(self._query_ids))))

    async def step_records(self, count: int) -> tuple[StepRecord, ...]:
        """Return the last ``count`` step records, oldest first; raises EngineDeadError."""
        return cast(tuple[StepRecord, ...], await self._ask(wire.AskSteps(next(self._query_ids), count)))

    async def graph_report(self) -> dict[str, Any]:
        """Return the engine's graphs as JSON values; raises EngineDeadError."""
        return cast(dict[str, Any], await self._ask(wire.AskGraphs(next(self._query_ids))))

    async def live_view(self, *, seen: int, most: int) -> LiveView:
        """Return the counts of now and up to ``most`` step records past the first ``seen``; raises EngineDeadError."""
        return cast(LiveView, await self._ask(wire.AskLive(next(self._query_ids), seen, most)))

    async def start_profile(self) -> None:
        """Begin to record what the engine runs; raises RequestError where that happens already, EngineDeadError."""
        await self._profile(wire.StartProfile(next(self._query_ids)))

    async def stop_profile(self, path: Path) -> None:
        """End the recording and have it written to ``path``; raises RequestError, EngineDeadError."""
        await self._profile(wire.StopProfile(next(self._query_ids), str(path)))

    async def _profile(self, query: wire.StartProfile | wire.StopProfile) -> None:
        refusal = cast(wire.ErrorReport | None, await self._ask(query))
        if refusal is not None:
            raise refusal.to_error()

    async def wait_ended(self) -> None:
        """Return when the process has ended, for whatever reason."""
        await asyncio.shield(self._ended)

    async def shutdown(self, *, drain: bool = False, timeout_s: float | None = None) -> None:
        """End the process: after its open requests, or at once. After ``timeout_s`` it is killed."""
        self._stopping = True
        if not self._ended.done():
            self._send(wire.Shutdown(drain))
            limit = timeout_s if drain else STOP_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait_ended(), limit)
        await self.kill()

    async def kill(self) -> None:
        """End the process now."""
        self._stopping = True
        self._process.kill()
        await self.wait_ended()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._socket.context.destroy(linger=0)

    def _check_alive(self) -> None:
        if self.error is not None:
            raise EngineDeadError(self.error.summary, self.error.details)
        if self._stopping:
            raise EngineDeadError("the engine is shutting down")

    def _send(self, command: wire.Command) -> None:
        # The future is done at once unless the engine has not connected yet; then the socket keeps the message.
        self._socket.send(wire.encode(command))

    async def _ask(self, query: _Query) -> object:
        self._check_alive()
        answer = self._queries[query.query_id] = asyncio.get_running_loop().create_future()
        try:
            self._send(query)
            return await answer
        finally:
            del self._queries[query.query_id]

    async def _receive(self) -> None:
        try:
            while True:
                await self._handle(wire.decode_event(await self._socket.recv()))
        except Exception as error:  # what cannot be read would leave requests waiting for ever; end them all instead
            self._cause = wire.ErrorReport.of(error).to_error()
            self._process.kill()
        finally:
            self._said_all.set()  # or nobody listens any more

    async def _handle(self, event: wire.Event) -> None:
        match event:
            case wire.Updates(updates):
                await self._hand_out(updates)
            case wire.Rejected(request_ids, error):
                self._reject(request_ids, error.to_error())
            case (
                wire.StatsReply(query_id, reply)
                | wire.StepsReply(query_id, reply)
                | wire.GraphsReply(query_id, reply)
                | wire.LiveReply(query_id, reply)
                | wire.ProfileReply(query_id, reply)
            ):
                self._answer(query_id, reply)
            case wire.Ready(config):
                if not self._ready.done():  # the start may have been cancelled
                    self._ready.set_result(config)
            case wire.Fatal(error):
                self._cause = error.to_error()
                self._said_all.set()
            case wire.Ended():
                self._said_all.set()

    def _answer(self, query_id: int, reply: object) -> None:
        # Whoever asked may have been cancelled: gone already, or with a cancelled future and still to run once more.
        answer = self._queries.get(query_id)
        if answer is not None and not answer.done():
            answer.set_result(reply)

    async def _hand_out(self, updates: Sequence[RequestUpdate]) -> None:
        # Each wakes whoever streams it, and all that are awake run before the loop looks at its sockets again: a new
        # request, which the engine could begin with its next step, would wait until the tokens of all others are sent.
        at_once = max(UPDATES_AT_ONCE, len(updates) // MOST_PAUSES)
        for start in range(0, len(updates), at_once):
            for update in updates[start : start + at_once]:
                self._route(update)
            if not self._is_behind():
                await asyncio.sleep(0)

    def _is_behind(self) -> bool:
        """Whether the engine has said more already: a stream then has tokens of several steps to send at once."""
        return bool(cast(int, self._socket.get(zmq.EVENTS)) & zmq.POLLIN)

    def _route(self, update: RequestUpdate) -> None:
        stream = self._streams.get(update.request_id)
        if stream is None:
            return  # aborted while its update was on the way
        if update.finish_reason is not None:
            del self._streams[update.request_id]
        stream.put(update)

    def _reject(self, request_ids: Sequence[str], error: LegatoError) -> None:
        streams = {id(stream): stream for key in request_ids if (stream := self._streams.pop(key, None)) is not None}
        for stream in streams.values():
            stream.put(error)

    def _wait_for_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop may have closed before the process
            loop.call_soon_threadsafe(lambda: loop.create_task(self._on_exit(code)))

    async def _on_exit(self, code: int) -> None:
        # The process and its messages come by different ways: an end may be noticed before what was said before it.
        limit = LAST_WORD_S if code in wire.TOLD_CODES else LAST_TOKENS_S
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._said_all.wait(), limit)
        finally:  # whoever waits for the end must hear of it even where the loop ends now and cancels this task
            self._tell_the_end(code)

    def _tell_the_end(self, code: int) -> None:
        self._receiver.cancel()
        error = death(code, self._cause)
        if not self._stopping:
            self.error = error
        if not self._ready.done():
            self._ready.set_exception(self._cause or error)
        self._reject(tuple(self._streams), error)
        for answer in self._queries.values():
            if not answer.done():
                answer.set_exception(error)
        self._ended.set_result(None)


async def _discard(client: EngineClient | None, socket: zmq.asyncio.Socket) -> None:
    if client is None:
        socket.context.destroy(linger=0)
    else:
        await client.kill()
