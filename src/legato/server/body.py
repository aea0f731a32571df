"""Request bodies from the socket to their models. Owns the size limit, which holds whatever the headers say."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from legato.server.errors import ApiError, invalid_body
from legato.server.extras import check_extras
from legato.server.requests import Body, extras
from legato.server.state import ServerState, state_of

DROP_S = 2.0
DROPPED_BYTES = 64 * 1024 * 1024
"""Of a body that is too long, so much of the rest is read and dropped, within DROP_S seconds."""

AnyBody = TypeVar("AnyBody", bound=Body)


def body_of(kind: type[AnyBody]) -> Callable[[Request], Awaitable[AnyBody]]:
    """Return a dependency that reads, parses and checks a body of ``kind``; raises ApiError."""

    async def parse(request: Request, state: Annotated[ServerState, Depends(state_of)]) -> AnyBody:
        data = await read(request, state.options.max_body_bytes)
        try:
            body = kind.model_validate_json(data)
        except ValidationError as error:
            raise invalid_body(error) from None
        check_extras(extras(body))
        state.check_model(body.model)
        return body

    return parse


async def read(request: Request, limit: int) -> bytes:
    """Return the body; raises ApiError for one longer than ``limit`` bytes, of which no more than that is kept."""
    parts, size, more = [], 0, True
    while more:
        part, more = await _next_part(request)
        size += len(part)
        if size > limit:
            await _drop_rest(request, more=more)
            message, headers = f"the body is longer than {limit} bytes", {"Connection": "close"}
            raise ApiError(413, message, code="body_too_large", headers=headers)
        parts.append(part)
    return b"".join(parts)


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
