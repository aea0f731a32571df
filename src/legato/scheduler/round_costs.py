"""What a round costs, by requests and drafts. Owns the measured table and what lies between its sizes; pure."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """Milliseconds of a step in which every request decodes."""

    sizes: tuple[int, ...]
    """Requests at once at which steps were measured, ascending."""
    num_drafts: tuple[int, ...]
    """Drafts of each request, ascending; the first is 0, plain decoding."""
    ms: tuple[tuple[float, ...], ...]
    """[sizes][num_drafts]"""

    def at(self, num_reqs: int) -> tuple[float, ...]:
        """Return milliseconds by drafts, [num_drafts]: between two sizes in proportion, beyond them as at the last."""
        place = bisect_left(self.sizes, num_reqs)
        if place == len(self.sizes):
            return self.ms[-1]
        if place == 0 or self.sizes[place] == num_reqs:
            return self.ms[place]
        low, high = self.sizes[place - 1], self.sizes[place]
        part = (num_reqs - low) / (high - low)
        return tuple(
            below + part * (above - below) for below, above in zip(self.ms[place - 1], self.ms[place], strict=True)
        )
