"""Request bodies from the socket to their models. Owns the size limit, which holds whatever the headers say."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from fastapi import Request
from pydantic import ValidationError

from legato.server.errors import ApiError, invalid_body
from legato.server.extras import check_extras
from legato.server.requests import Body, extras
from legato.server.state import state_of

DROP_S = 2.0
DROPPED_BODIES = 4
"""Of a body that is too long, this many times the limit is read after it, within DROP_S seconds."""

AnyBody = TypeVar("AnyBody", bound=Body)


def body_of(kind: type[AnyBody]) -> Callable[[Request], Awaitable[AnyBody]]:
    """Return a dependency that reads, parses and checks a body of ``kind``; raises ApiError."""

    async def parse(request: Request) -> AnyBody:
        state = state_of(request)
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
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise await _refuse(request, limit)
        parts.append(part)
    return b"".join(parts)


async def _refuse(request: Request, limit: int) -> ApiError:
    # Closing the connection on a client that is still sending would destroy the answer before it is read, so the rest
    # is read and dropped, for a while.
    with suppress(TimeoutError):
        await asyncio.wait_for(_drop(request, limit * DROPPED_BODIES), DROP_S)
    return ApiError(
        413, f"the body is longer than {limit} bytes", code="body_too_large", headers={"Connection": "close"}
    )


async def _drop(request: Request, most: int) -> None:
    more = True
    while more and most > 0:
        message = await request.receive()
        more = message.get("more_body", False)
        most -= len(message.get("body", b""))
