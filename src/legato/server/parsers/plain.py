"""The parser of messages that are nothing but content."""

from legato.server.parsers.pieces import Content, Piece


class PlainParser:
    """Hands text on."""

    def add(self, text: str) -> list[Piece]:
        """Return the text."""
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        """Return nothing: nothing was held back."""
        return []
