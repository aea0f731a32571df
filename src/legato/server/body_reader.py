"""Request bodies from the socket. Owns the limits, of one body and of all together, whatever the headers say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import ClientDisconnect, Request

from legato.server.errors import ApiError, overloaded

FULL_BODIES = 16
"""Bodies as large as one may be that are held at once; of smaller ones it is any number."""
DROP_S = 2.0
DROPPED_BYTES = 64 * 1024 * 1024
"""Of a body that is refused, so much of the rest is read and dropped, within DROP_S seconds."""
_CLOSE = {"Connection": "close"}


class BodyReader:
    """Reads bodies of at most ``limit`` bytes, and holds FULL_BODIES times as much of all requests together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, which counts as held until the block ends; raises ApiError for one that is too much."""
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                part, more = await _next_part(request)
                size += len(part)
                self._held += len(part)
                parts.append(part)
                if (refusal := self._refusal(size)) is not None:
                    self._held -= size  # at once: what is given up here lets others go on
                    size = 0
                    parts.clear()
                    await _drop_rest(request, more=more)
                    raise refusal
            yield b"".join(parts)
        finally:
            self._held -= size

    def _refusal(self, size: int) -> ApiError | None:
        if size > self._limit:
            message = f"the body is longer than {self._limit} bytes"
            return ApiError(413, message, code="body_too_large", headers=_CLOSE)
        if self._held > FULL_BODIES * self._limit:
            return overloaded("the server holds as much of other requests' bodies as it may; try again later", _CLOSE)
        return None


async def _next_part(request: Request) -> tuple[bytes, bool]:
    """Return the next part of the body, and whether more follows."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _drop_rest(request: Request, *, more: bool) -> None:
    # Closing the connection on a client that is still sending would destroy the answer before it is read.
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DROP_S):
            while more and size < DROPPED_BYTES:
                part, more = await _next_part(request)
                size += len(part)
