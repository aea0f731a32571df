"""HTTP/1.1 over a socket of the event loop: connections that are used again, and one exchange at a time on each.

Owns when bytes arrived: the clock is read once for each piece of data, before anything is made of it. Knows nothing of
what is exchanged. A general client costs the loop several times as much per piece, which would show in the figures of
a server with hundreds of streams.
"""

import asyncio
import ssl
import time
from typing import Protocol, cast

import httptools
import httpx

from legato.errors import ConfigError

UNANSWERED = "connection closed without an answer"


class Receiver(Protocol):
    """Who takes in one response."""

    def on_status(self, status: int) -> None:
        """Take in the status, once all headers are there."""
        ...

    def on_data(self, now: float, data: bytes) -> None:
        """Take in a part of the body that arrived at ``now``, in seconds of ``time.perf_counter``."""
        ...

    def on_end(self, reason: str | None) -> None:
        """Take in the end of the response; ``reason``: why it is not whole."""
        ...


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._now = 0.0
        self._status_seen = False
        self.responses = 0
        """Responses that began."""
        self.reusable = False

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request whose response ``receiver`` takes in."""
        assert self._transport is not None and self._receiver is None, "one exchange at a time"
        self._receiver, self._status_seen, self.reusable = receiver, False, False
        if self._transport.is_closing():  # lost since it was made, of which nobody would be told again
            self._end(UNANSWERED)
        else:
            self._transport.write(request)

    def close(self) -> None:
        """Close the connection; a response that has not ended is given up without a word."""
        self._receiver, self.reusable = None, False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own kind is none by name

    def data_received(self, data: bytes) -> None:
        """Read the clock, then the data."""
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"malformed HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response: whole, as far as HTTP goes, if its end is that of the connection."""
        self.reusable = False
        if exc is not None or not self._status_seen:
            self._end(f"connection lost: {exc}" if exc else UNANSWERED)
        else:
            self._end(None)

    def on_headers_complete(self) -> None:
        """Pass the status on."""
        status = self._parser.get_status_code()
        if status >= 200 and self._receiver is not None:  # 100 Continue is followed by the answer
            self._status_seen = True
            self.responses += 1
            self._receiver.on_status(status)

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        if self._receiver is not None:
            self._receiver.on_data(self._now, body)

    def on_message_complete(self) -> None:
        """End the response."""
        if self._status_seen:
            self.reusable = self._parser.should_keep_alive()
            self._end(None)

    def _end(self, reason: str | None) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_end(reason)


class Pool:
    """Connections to one server."""

    def __init__(self, base_url: str, *, api_key: str | None, connect_timeout_s: float = 10.0) -> None:
        url = server_root(base_url)
        self._host, self._port = url.host, url.port or (443 if url.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._path = url.path.rstrip("/")
        self._timeout_s = connect_timeout_s
        lines = [f"Host: {url.netloc.decode()}", "Accept: text/event-stream", "Content-Type: application/json"]
        lines += [] if api_key is None else [f"Authorization: Bearer {api_key}"]
        self._headers = "\r\n".join(lines)
        self._idle: list[Connection] = []

    def request(self, path: str, body: bytes) -> bytes:
        """Return the bytes of a POST request."""
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode("latin-1") + body

    async def take(self) -> Connection:
        """Return a connection, an idle one if there is any. Raises OSError where none can be made, in time."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._timeout_s):
            _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it where its response has not ended well."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def server_root(base_url: str) -> httpx.URL:
    """Return a server's address without ``/v1``. Raises ConfigError for what is no address."""
    try:
        url = httpx.URL(base_url.rstrip("/").removesuffix("/v1"))
    except httpx.InvalidURL as error:
        raise _no_address(base_url) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise _no_address(base_url)
    return url


def _no_address(base_url: str) -> ConfigError:
    return ConfigError("this is no server's address", {"requested": base_url, "options": "--base-url http://HOST:PORT"})
