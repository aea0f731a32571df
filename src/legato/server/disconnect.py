"""Clients that go away while they are being served. Owns how that is noticed and what it stops."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

Result = TypeVar("Result")


async def disconnected(request: Request) -> None:
    """Return when the client has gone. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of ``work``; when the client goes first, cancel it and raise ClientDisconnect."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait({working})
