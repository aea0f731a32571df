"""Reasoning between ``<think>`` and ``</think>`` at the start of a message. What follows goes to another parser.

Templates that open the reasoning in the prompt leave only its end to the model. White space at either end of the
reasoning, and before what follows it, belongs to neither.
"""

from legato.server.parsers.marks import MarkFinder
from legato.server.parsers.pieces import Parser, Piece, Reasoning, joined

OPENING, CLOSING = "<think>", "</think>"


class ThinkParser:
    """Splits one message in two; ``inside``: the prompt has opened the reasoning."""

    def __init__(self, rest: Parser, *, inside: bool = False) -> None:
        self._rest = rest
        self._start: str | None = "" if not inside else None
        """What came so far, while it may become the opening mark; None: it has been decided."""
        self._inside = inside
        self._finder = MarkFinder((CLOSING,))
        self._begun = False
        """The part that is being read has text."""

    def add(self, text: str) -> list[Piece]:
        """Return what is certain now."""
        return joined(piece for character in text for piece in self._take(character))

    def finish(self) -> list[Piece]:
        """Return what was held back."""
        held: list[Piece] = []
        if self._start is not None:
            held += self._rest.add(self._start)
        elif self._inside:
            held.append(Reasoning(self._finder.take().rstrip()))
        return joined([*held, *self._rest.finish()])

    def _take(self, character: str) -> list[Piece]:
        if self._start is not None:
            return self._at_start(character)
        if self._inside:
            return self._in_reasoning(character)
        if not self._begun and character.isspace():
            return []
        self._begun = True
        return self._rest.add(character)

    def _at_start(self, character: str) -> list[Piece]:
        start = (self._start or "") + character
        seen = start.lstrip()
        if seen == OPENING:
            self._start, self._inside = None, True
            return []
        if OPENING.startswith(seen):
            self._start = start
            return []
        self._start, self._begun = None, True
        return self._rest.add(start)

    def _in_reasoning(self, character: str) -> list[Piece]:
        if not self._begun and character.isspace():
            return []
        self._begun = True
        text, mark = self._finder.add(character)
        if mark is not None:
            self._inside = self._begun = False
        return [Reasoning(text)] if text else []
