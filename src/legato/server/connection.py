"""One connection: how long its client may take, and how much it may send, before it is dropped. Knows no route.

uvicorn reads and writes HTTP, but waits for ever for a client that owes it something. :class:`Connection` adds what it
lacks; whoever is dropped is told why, as far as it still listens, and the reason is counted.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from legato.server.errors import ApiError, overloaded

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers together; also what follows a body."""
MAX_PIPELINED = 16
"""Requests on one connection that may wait for the answer to an earlier one."""
LINGER_S = 2.0
"""How long the rest of a refused request is read and dropped: closing at once could destroy the answer on its way."""
LATE_S = 1.0
"""A server that was busy for longer than this has yet to read what clients have sent meanwhile."""


class Dropped(StrEnum):
    """Why a connection was ended that its client would have kept."""

    TOO_MANY = "too_many_connections"
    MALFORMED = "malformed"
    LARGE_HEAD = "large_head"
    PIPELINED = "too_many_pipelined"
    SLOW_REQUEST = "slow_request"
    SLOW_READER = "slow_reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What clients may take, together and each."""

    max_connections: int
    client_timeout_s: float
    """For a whole head; for the next part of a body; for reading anything of an answer that waits to be read."""
    body_timeout_s: float
    """For a whole body, however steadily its parts come."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with an end to every wait for the client; :meth:`check` is to be called now and then."""

    def __init__(self, *, limits: ConnectionLimits, on_drop: Callable[[Dropped], None], **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._limits = limits
        self._on_drop = on_drop
        self._served: RequestResponseCycle | None = None
        """The request that is being answered. uvicorn's ``cycle`` is the latest, which may wait behind it."""
        self._served_since = 0.0
        self._head_is_open = False
        self._owes_since = 0.0
        """Since when the client has owed the head, or the part of a body, that it owes now."""
        self._loose_bytes = 0
        """Received since a head, or a part of a body, was complete."""
        self._unread_bytes = 0
        """What waited to be read by the client at the last look."""
        self._unread_since = 0.0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request; refuse a connection that is one too many."""
        super().connection_made(transport)
        self._owes_since = self.loop.time()
        if len(self.connections) > self._limits.max_connections:
            self._drop(Dropped.TOO_MANY, overloaded("the server holds as many connections as it may"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, which uvicorn does only where none has come behind it."""
        self._give_up_served()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what the client sends, unless it has been refused."""
        if self._refused:
            return
        self._loose_bytes += len(data)
        if self._is_answering:
            self._owes_since = self.loop.time()
        super().data_received(data)
        if self._loose_bytes > MAX_HEAD_BYTES and not self._refused:
            self._drop(Dropped.LARGE_HEAD, _LARGE_HEAD)

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        self._head_is_open = True
        self._owes_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header; those behind a body are of no use to anyone."""
        if self._head_is_open:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Serve a request, or have it wait for its turn; raises ConnectionRefusedError, which ends the reading."""
        self._head_is_open = False
        self._loose_bytes = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._drop(Dropped.LARGE_HEAD, _LARGE_HEAD)
            raise ConnectionRefusedError
        if len(self.pipeline) >= MAX_PIPELINED:
            self._drop(Dropped.PIPELINED, _PIPELINED)
            raise ConnectionRefusedError
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take in a part of a body."""
        self._loose_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._owes_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the shape of every other error."""
        if not self._refused:
            self._drop(Dropped.MALFORMED, ApiError(400, "this is no HTTP/1.1 request", code="malformed_http"))

    def check(self, now: float) -> None:
        """Drop the connection where its client has let the server wait for too long; ``now``: the loop's time."""
        if self._refused and now - self._owes_since > LINGER_S:
            self.transport.abort()
        elif self._waits_unread(now) > self._limits.client_timeout_s:
            self._on_drop(Dropped.SLOW_READER)
            self.transport.abort()
        elif self._owes_something and self._is_late(now):
            self._drop(Dropped.SLOW_REQUEST, ApiError(408, "the request did not come in time", code="slow_request"))

    @property
    def _is_answering(self) -> bool:
        return self._served is not None and not self._served.response_complete

    @property
    def _owes_something(self) -> bool:
        """Whether nothing can go on before the client sends something. uvicorn itself ends idle connections."""
        if self._refused or self.transport.is_closing() or self.flow.read_paused:
            return False
        if self._served is None or self._served.response_complete:
            return self._head_is_open or self.timeout_keep_alive_task is None
        return self._served.more_body

    def _is_late(self, now: float) -> bool:
        """Return whether what the client owes should have come by now."""
        if self._is_answering and now - self._served_since > self._limits.body_timeout_s:
            return True
        return now - self._owes_since > self._limits.client_timeout_s

    def _waits_unread(self, now: float) -> float:
        """Return for how long the client has read nothing of what is there to be read."""
        unread = self.transport.get_write_buffer_size()
        if unread == 0 or unread != self._unread_bytes:
            self._unread_bytes, self._unread_since = unread, now
        return now - self._unread_since

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served, self._served_since = cycle, self.loop.time()
        super()._start_asgi_task(cycle, app)

    def _drop(self, reason: Dropped, error: ApiError) -> None:
        """Tell the client of ``error``, as far as an answer has not begun, and read no more of what it sends."""
        self._refused = True
        self._owes_since = self.loop.time()
        self._on_drop(reason)
        if self._served is not None and self._is_answering and self._served.response_started:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(_written(error))
            self.transport.write_eof()
        self._give_up_served()

    def _give_up_served(self) -> None:
        """Have the request that is being answered find its client gone."""
        if self._served is not None and self._is_answering:
            self._served.disconnected = True
            self._served.message_event.set()


async def keep_checking(connections: Collection[Any], *, every_s: float) -> None:
    """Have every :class:`Connection` look at its client, for ever, but not for what the server itself was late with."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + every_s
        await asyncio.sleep(every_s)
        now = loop.time()
        if now - due < LATE_S:
            for connection in tuple(connections):
                connection.check(now)


def _written(error: ApiError) -> bytes:
    """Return ``error`` as the last response of a connection."""
    response = error.response()
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode() + lines + b"\r\n" + error.json()


_LARGE_HEAD = ApiError(431, f"the headers are longer than {MAX_HEAD_BYTES} bytes", code="headers_too_large")
_PIPELINED = ApiError(400, f"more than {MAX_PIPELINED} requests wait on this connection", code="too_many_pipelined")
