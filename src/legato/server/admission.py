"""How many outputs the server takes on. Owns the count of those that are being tokenised, waiting or running."""

from collections.abc import Iterator
from contextlib import contextmanager

from legato.errors import QueueFullError, RequestError


class Admission:
    """At most ``limit`` outputs at once. The engine holds the same limit; this one refuses before any work is done."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    @contextmanager
    def slots(self, count: int) -> Iterator[None]:
        """Hold ``count`` slots; raises QueueFullError, or RequestError for more than could ever be free."""
        details = {"requested": f"{count} outputs", "found": f"{self._taken} running or waiting", "limit": self._limit}
        if count > self._limit:
            raise RequestError("one request asks for more outputs than the server holds", details, param="n")
        if self._taken + count > self._limit:
            raise QueueFullError("the server is at its limit; try again later", details)
        self._taken += count
        try:
            yield
        finally:
            self._taken -= count
