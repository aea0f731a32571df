"""Rows of device state: who may have which, and which were given back since the last step."""

from heapq import heapify, heappop, heappush


class RowPool:
    """Rows ``0 … num_rows - 1``. The smallest free row is taken, so that few requests stand in the first rows."""

    def __init__(self, num_rows: int) -> None:
        self._free = list(range(num_rows))
        heapify(self._free)
        self._released: list[int] = []

    @property
    def num_free(self) -> int:
        """Rows without a request."""
        return len(self._free)

    def take(self) -> int:
        """Return the smallest free row."""
        return heappop(self._free)

    def release(self, row: int) -> None:
        """Give a row back; it can be taken at once, because releases are applied before admissions."""
        heappush(self._free, row)
        self._released.append(row)

    def drain_released(self) -> tuple[int, ...]:
        """Return the rows given back since the last call, in that order."""
        released = tuple(self._released)
        self._released.clear()
        return released
