"""Tool calls as Llama 3 writes them: a message that is a JSON object, behind ``<|python_tag|>`` or not, or several.

Between several stands a ``;``. A message is a call only where its first object names a declared tool; any other is
content, as it was written.
"""

from legato.server.parsers.call_reader import CallReader, Status
from legato.server.parsers.pieces import Content, Piece, joined

PYTHON_TAG = "<|python_tag|>"
SEPARATORS = ";,"


class Llama3Parser:
    """Reads one message."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._lead = ""
        """White space, separators and the tag before an object."""
        self._reader: CallReader | None = None
        self._is_content = False
        self._called = False

    def add(self, text: str) -> list[Piece]:
        """Return what is certain now."""
        return joined(piece for character in text for piece in self._take(character))

    def finish(self) -> list[Piece]:
        """Return what was held back."""
        if self._reader is not None:
            return [] if self._reader.started else [Content(self._lead + self._reader.raw)]
        rest = self._lead.strip(f"{SEPARATORS} \n") if self._called else self._lead
        return [Content(rest)] if rest else []

    def _take(self, character: str) -> list[Piece]:
        if self._is_content:
            return [Content(character)]
        if self._reader is not None:
            return self._in_call(self._reader, character)
        if character == "{":
            self._reader = CallReader(self._names)
            return self._in_call(self._reader, character)
        self._lead += character
        if PYTHON_TAG.startswith(self._mark()) or self._mark() == PYTHON_TAG:
            return []
        return self._give_up("")

    def _mark(self) -> str:
        """Return what of the lead must become the tag."""
        lead = self._lead.strip()
        return lead.lstrip(f"{SEPARATORS} \n") if self._called else lead

    def _in_call(self, reader: CallReader, character: str) -> list[Piece]:
        pieces = reader.add(character)
        self._called |= reader.started
        if reader.status is Status.READING:
            return pieces
        self._reader = None
        if reader.status is Status.DONE:
            self._lead = ""
            return pieces
        if reader.started:
            self._lead = ""
        return pieces + self._give_up(("" if reader.started else reader.raw) + character)

    def _give_up(self, text: str) -> list[Piece]:
        """Take the rest of the message for content."""
        self._is_content = True
        held, self._lead = self._lead, ""
        return [Content(held + text)]
