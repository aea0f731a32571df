"""The updates of requests that were submitted together. Owns their order; knows neither socket nor text."""

import asyncio
from collections.abc import Sequence
from typing import Self

from legato.errors import LegatoError
from legato.flow.request import Request
from legato.flow.request_update import RequestUpdate


class UpdateStream:
    """Updates of the requests that were submitted together."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.request_ids = tuple(request.request_id for request in requests)
        self.open = set(self.request_ids)
        """Requests without an end so far."""
        self._items: list[RequestUpdate | LegatoError] = []
        self._news: asyncio.Future[None] | None = None
        """Waited for where there are no items."""

    def put(self, item: RequestUpdate | LegatoError) -> None:
        """Append an update, or the error that ends the stream."""
        self._items.append(item)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def __aiter__(self) -> Self:
        """Return the stream itself: a reader that leaves has nothing to close."""
        return self

    async def __anext__(self) -> list[RequestUpdate]:
        """Return all updates that have come since the last ones were taken; raises the error that ended the stream."""
        if not self.open:
            raise StopAsyncIteration
        if not self._items:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        items, self._items = self._items, []
        return [self._take(item) for item in items]

    def _take(self, item: RequestUpdate | LegatoError) -> RequestUpdate:
        if isinstance(item, LegatoError):
            self.open.clear()
            raise item
        if item.finish_reason is not None:
            self.open.discard(item.request_id)
        return item
