"""A plain reader of server-sent events, by the letter of the specification as far as it is needed."""

from collections.abc import AsyncIterator, Iterator

import httpx


def events(response: httpx.Response) -> Iterator[tuple[str, str]]:
    """Yield (event name, data)."""
    parser = _Parser()
    for line in response.iter_lines():
        yield from parser.feed(line)


async def async_events(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Yield (event name, data)."""
    parser = _Parser()
    async for line in response.aiter_lines():
        for event in parser.feed(line):
            yield event


class _Parser:
    def __init__(self) -> None:
        self._name, self._data = "message", []

    def feed(self, line: str) -> Iterator[tuple[str, str]]:
        if line:
            field, _, value = line.partition(": ")
            assert field in ("event", "data"), line
            if field == "event":
                self._name = value
            else:
                self._data.append(value)
        elif self._data:
            yield self._name, "\n".join(self._data)
            self._name, self._data = "message", []
