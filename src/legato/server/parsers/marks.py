"""Text in which marks are looked for as it comes: what might be the start of one is held back."""

from collections.abc import Sequence


class MarkFinder:
    """Gives text up to the first mark of several; white space before a mark is told apart from the text."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = tuple(marks)
        self.held = ""
        """White space and the start of a mark that have not been handed out."""

    def add(self, character: str) -> tuple[str, str | None]:
        """Return (text that is certain, the mark that ``character`` completes); a mark empties what is held."""
        self.held += character
        mark = next((mark for mark in self._marks if self.held.endswith(mark)), None)
        if mark is not None:
            before, self.held = self.held.removesuffix(mark).rstrip(), ""
            return before, mark
        certain = len(self.held) - self._start_of_mark()
        certain = len(self.held[:certain].rstrip())
        text, self.held = self.held[:certain], self.held[certain:]
        return text, None

    def take(self) -> str:
        """Return what is held, and hold nothing."""
        held, self.held = self.held, ""
        return held

    def _start_of_mark(self) -> int:
        """Return how many of the last characters may be the start of a mark."""
        longest = max(map(len, self._marks)) - 1
        return next(
            (
                length
                for length in range(min(longest, len(self.held)), 0, -1)
                if any(mark.startswith(self.held[-length:]) for mark in self._marks)
            ),
            0,
        )
