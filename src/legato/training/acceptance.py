"""How many drafts stand on texts that greedy decoding wrote. Owns both ways to count them.

Rates are teacher-forced: draft ``i`` against the target's likeliest token at every position at which all drafts before
it are right. An engine does not see all positions alike: its rounds begin where the last one failed, in harder places.
Walking through a text round by round, as the engine does, gives the length that it will have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a head is on texts that it was not trained on."""

    loss: float
    acceptance_rates: tuple[float, ...]
    """[k] share of the positions at which draft i is right, of those at which all before it are."""
    acceptance_lengths: tuple[float, ...]
    """[k] tokens that a round of 1, 2, … k drafts yields in the mean, the target's own token included."""


@dataclass(slots=True)
class AcceptanceCounts:
    """Sums over batches, on the host."""

    num_steps: int
    _right: np.ndarray = field(init=False)  # [num_steps] int64
    _reached: np.ndarray = field(init=False)  # [num_steps] int64
    _accepted: np.ndarray = field(init=False)  # [num_steps] int64, in rounds of 1, 2, … drafts
    _rounds: np.ndarray = field(init=False)  # [num_steps] int64

    def __post_init__(self) -> None:
        zeros = np.zeros((4, self.num_steps), dtype=np.int64)
        self._right, self._reached, self._accepted, self._rounds = zeros

    def add(self, drafts: Sequence[np.ndarray], greedy: np.ndarray, following: np.ndarray, left: np.ndarray) -> None:
        """Count a batch. ``drafts`` has one array of target ids for each step, of the rows that have so many left.

        ``greedy`` and ``following`` [num_rows] int64: the target's likeliest token at a row, and the text's own one.
        Where they differ, what comes after says nothing of greedy decoding. ``left`` [num_rows] int64: rows of the
        same text that follow a row.
        """
        reached, stands = np.ones(len(left), dtype=bool), np.ones(len(left), dtype=bool)
        runs = np.zeros(len(left), dtype=np.int64)
        for step, drafted in enumerate(drafts):
            rows = np.flatnonzero(left >= step)
            right, own = np.zeros_like(reached), np.zeros_like(reached)
            right[rows] = reached[rows] & (drafted == greedy[rows + step])
            own[rows] = stands[rows] & (drafted == following[rows + step])
            self._reached[step] += np.count_nonzero(reached[rows])
            self._right[step] += np.count_nonzero(right)
            right[rows] &= greedy[rows + step] == following[rows + step]
            reached, stands = right, own
            runs += own
        for step in range(self.num_steps):
            rounds, accepted = walk(np.minimum(runs, step + 1), left)
            self._rounds[step] += rounds
            self._accepted[step] += accepted

    def evaluation(self, loss: float) -> Evaluation:
        """Return what was counted, with the loss."""
        lengths = 1 + self._accepted / np.maximum(self._rounds, 1)
        rates = self._right / np.maximum(self._reached, 1)
        return Evaluation(loss=loss, acceptance_rates=tuple(rates.tolist()), acceptance_lengths=tuple(lengths.tolist()))


def walk(runs: np.ndarray, left: np.ndarray) -> tuple[int, int]:
    """Return the rounds that decoding takes through texts, and the drafts that stand in them.

    ``runs`` [num_rows] int64: drafts that stand if a round begins at a row; the next one begins behind them.
    """
    steps, ends = runs.tolist(), left.tolist()
    row = rounds = accepted = 0
    while row < len(steps):
        rounds += 1
        accepted += steps[row]
        row += min(steps[row], ends[row]) + 1
    return rounds, accepted
