"""Tool calls as Hermes and Qwen write them: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, one mark a call.

White space around calls belongs to nothing. What stands in a mark and is no call of a declared tool is content, as it
was written.
"""

from legato.server.parsers.call_reader import CallReader, Status
from legato.server.parsers.marks import MarkFinder
from legato.server.parsers.pieces import Content, Piece, joined

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class HermesParser:
    """Reads one message."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._finder = MarkFinder((OPENING,))
        self._reader: CallReader | None = None
        self._closing: str | None = None
        """What followed a call so far, while it may become the closing mark; None: not behind a call."""
        self._gap = ""
        """White space that ended content before a call, and comes back where there was none."""
        self._called = False

    def add(self, text: str) -> list[Piece]:
        """Return what is certain now."""
        return joined(piece for character in text for piece in self._take(character))

    def finish(self) -> list[Piece]:
        """Return what was held back."""
        if self._reader is not None:
            return [] if self._reader.started else [Content(self._gap + OPENING + self._reader.raw)]
        if self._closing is not None:
            return []
        held = self._finder.take()
        return [Content(held)] if held and not (self._called and held.isspace()) else []

    def _take(self, character: str) -> list[Piece]:
        if self._reader is not None:
            return self._in_call(self._reader, character)
        if self._closing is not None:
            return self._behind_call(character)
        return self._in_content(character)

    def _in_content(self, character: str) -> list[Piece]:
        held = self._finder.held + character
        text, mark = self._finder.add(character)
        if mark is not None:
            self._gap = held.removesuffix(OPENING)[len(text) :]
            self._reader = CallReader(self._names)
        return [Content(text)] if text else []

    def _in_call(self, reader: CallReader, character: str) -> list[Piece]:
        pieces = reader.add(character)
        self._called |= reader.started
        if reader.status is Status.READING:
            return pieces
        self._reader = None
        if reader.status is Status.DONE:
            self._closing = ""
            return pieces
        if not reader.started:
            pieces.append(Content(self._gap + OPENING + reader.raw))
        return pieces + self._in_content(character)

    def _behind_call(self, character: str) -> list[Piece]:
        self._closing = (self._closing or "") + character
        seen = self._closing.lstrip()
        if CLOSING.startswith(seen):
            if seen == CLOSING:
                self._closing = None
            return []
        text, self._closing = self._closing, None
        return [piece for each in text for piece in self._in_content(each)]
