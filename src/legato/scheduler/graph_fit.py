"""The sizes of graphs that steps should have. Owns when padding costs more than what is left to the next step. Pure."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFit:
    """What is worth a cut, of steps that any mix of requests may make up."""

    sizes: tuple[int, ...] = ()
    """Tokens that graphs for any mix are captured at, ascending; none: no step is padded."""
    least_tokens: int = 1024
    """Of a step that takes time in proportion to its tokens: reading the weights is what smaller ones wait for."""
    most_padding: int = 128
    """Tokens that are computed for nothing rather than cut. On an H200 so many take 3 ms of Llama 3.1 8B, and the few
    tokens that a cut leaves over, 1 ms more in a step of decodes."""

    def size_of(self, num_tokens: int) -> int:
        """Return how many tokens the graph that serves so many has room for; ``num_tokens`` where no graph does."""
        place = bisect_left(self.sizes, num_tokens)
        return num_tokens if place == len(self.sizes) else self.sizes[place]

    def excess(self, num_tokens: int) -> int:
        """Return how many of a step's tokens are better left to the next step: those beyond the graph below, or 0."""
        place = bisect_left(self.sizes, num_tokens)
        if place in (0, len(self.sizes)):
            return 0
        below, above = self.sizes[place - 1 : place + 1]
        if below < self.least_tokens or above - num_tokens <= self.most_padding:
            return 0
        return num_tokens - below


ANY_SIZE = GraphFit()
"""Of engines whose mixes are on no graph."""
