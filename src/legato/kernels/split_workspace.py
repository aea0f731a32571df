"""Where the programs of a split computation meet. Owns memory that never moves, and the rule by which they meet.

Each program leaves what it found and counts itself; the last one to arrive, whichever it is, finds all the others'
results and puts them together in their order, so that the result does not depend on who was last. It resets the
counter, so that the next launch, or replay, begins at zero. Launches that share a workspace must follow each other, as
those of one stream do.
"""

from functools import cache

import torch

_PARTIAL_ELEMENTS = 1 << 22
_COUNTERS = 1 << 14


class SharedWorkspace:
    """Room for partial results, and a counter for each group of programs that meet; graphs keep their addresses."""

    def __init__(self, elements: int, counters: int, device: torch.device) -> None:
        self.partial = torch.empty(elements, dtype=torch.float32, device=device)
        self.counters = torch.zeros(counters, dtype=torch.int32, device=device)

    def check(self, *, blocks: int, splits: int, elements: int) -> None:
        """Assert that ``splits`` results of ``elements`` fit for each of ``blocks``; one split leaves nothing."""
        assert splits == 1 or (
            blocks <= self.counters.numel() and blocks * splits * elements <= self.partial.numel()
        ), "the split computation's results do not fit in its workspace"


@cache
def shared_workspace(device: torch.device) -> SharedWorkspace:
    """Return what the split computations on ``device`` share; made by the first of them, before any capture."""
    return SharedWorkspace(_PARTIAL_ELEMENTS, _COUNTERS, device)
