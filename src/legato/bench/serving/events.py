"""Server-sent events as bytes -> the data of each. Owns the format as far as servers of this interface use it.

Lines end with LF or CRLF. Comments, ids and retry times are passed over.
"""

from collections.abc import Iterator

MAX_EVENT_BYTES = 1 << 24


class MalformedStreamError(ValueError):
    """What came is no stream of events of this interface."""


class EventReader:
    """Cuts a stream into events, wherever its bytes were cut on the way."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield (event name, data) of each event that is complete. Raises MalformedStreamError for one without end."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise MalformedStreamError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._take(line)
            elif self._data:
                name, data = self._name, b"\n".join(self._data)
                self._name, self._data = "", []
                yield name, data
            else:
                self._name = ""

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.strip().decode(errors="replace")
