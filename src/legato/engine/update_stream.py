"""The updates of requests that were submitted together. Owns their order; knows neither socket nor text."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from legato.errors import LegatoError
from legato.flow.request import Request
from legato.flow.request_update import RequestUpdate


class UpdateStream:
    """Updates of the requests that were submitted together."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.request_ids = tuple(request.request_id for request in requests)
        self.open = set(self.request_ids)
        """Requests without an end so far."""
        self._queue: asyncio.Queue[RequestUpdate | LegatoError] = asyncio.Queue()

    def put(self, item: RequestUpdate | LegatoError) -> None:
        """Append an update, or the error that ends the stream."""
        self._queue.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[list[RequestUpdate]]:
        """Yield all updates that have come since the last ones were taken; raises the error that ended the stream."""
        while self.open:
            updates = [self._take(await self._queue.get())]
            while not self._queue.empty():
                updates.append(self._take(self._queue.get_nowait()))
            yield updates

    def _take(self, item: RequestUpdate | LegatoError) -> RequestUpdate:
        if isinstance(item, LegatoError):
            self.open.clear()
            raise item
        if item.finish_reason is not None:
            self.open.discard(item.request_id)
        return item
