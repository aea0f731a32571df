"""Stop strings in a stream of text. Owns the text held back because a stop string may have begun in it."""

from collections.abc import Sequence


class StopStrings:
    """Releases text that no stop string can claim any more, and finds the first one that is complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._beginnings = frozenset(stop[:end] for stop in stops for end in range(1, len(stop)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = ""

    def add(self, text: str, *, armed: bool = True) -> tuple[str, str | None]:
        """Take more text; return the text released, and the stop string that this text completed.

        The released text ends before the stop string. While not ``armed``, a string that is completed counts as text.
        """
        pending = self._held + text
        if armed and (found := self._first_match(pending)) is not None:
            start, stop = found
            self._held = ""
            return pending[:start], stop
        kept = self._possible_start(pending)
        self._held = pending[kept:]
        return pending[:kept], None

    def finish(self) -> str:
        """Return what was held back; no text follows."""
        released, self._held = self._held, ""
        return released

    def _first_match(self, pending: str) -> tuple[int, str] | None:
        """Return where the earliest stop string begins among those that end in the new text."""
        found = []
        for stop in self._stops:
            start = pending.find(stop, max(0, len(self._held) - len(stop) + 1))
            if start >= 0:
                found.append((start, stop))
        return min(found, default=None)

    def _possible_start(self, pending: str) -> int:
        """Return where the longest end of ``pending`` begins that begins a stop string too."""
        for start in range(max(0, len(pending) - self._longest), len(pending)):
            if pending[start:] in self._beginnings:
                return start
        return len(pending)
