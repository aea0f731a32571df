"""Server-sent events: their bytes, and a response that notices at once when its reader has gone."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from legato.server.disconnect import while_connected
from legato.server.errors import ApiError

DONE = b"data: [DONE]\n\n"
_encoder = msgspec.json.Encoder()


def event(chunk: msgspec.Struct) -> bytes:
    """Return the event of one chunk."""
    return b"data: " + _encoder.encode(chunk) + b"\n\n"


def last_events(chunk: msgspec.Struct | None) -> bytes:
    """Return the end of a stream of chunks; ``chunk``: one more comes before."""
    return DONE if chunk is None else event(chunk) + DONE


def named_event(data: msgspec.Struct) -> bytes:
    """Return an event whose name is the tag of its data."""
    return f"event: {data.__struct_config__.tag}\ndata: ".encode() + _encoder.encode(data) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """Return the event that ends a stream which cannot go on."""
    return b"event: error\ndata: " + error.json() + b"\n\n"


class EventStream(Response):
    """Sends events as they come. When the client disconnects, the source is closed, though it may have nothing to send.

    ``resources`` are released in every case: what the source draws from, even if it never starts.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes, None], resources: AsyncExitStack) -> None:
        self._source = source
        self._resources = resources
        self.status_code = 200
        self.background = None
        # Proxies must neither store events nor hold them back.
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        async with self._resources:
            with suppress(ClientDisconnect):
                await while_connected(Request(scope, receive), self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._source):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for data in self._source:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
