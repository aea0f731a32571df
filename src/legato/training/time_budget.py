"""How long a run may take, and how many of its steps fit. Owns the clock; knows nothing of what a step does."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from legato.errors import ConfigError

_MARGIN, _LAST_MARGIN = 0.03, 0.01
"""Shares of the time that are left over: in plans, because no estimate is exact; at the end, for the process to end."""
_WARM_STEPS, _TIMED_STEPS = 3, 20
_TIMED_SHARE = 0.1
"""Of the time that is left, what the timed steps take at most: on a slow device they are fewer."""


class Stopwatch:
    """The seconds that a run has used, those of interrupted calls included."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds since any moment; the run begins now."""
        self._clock = clock
        self._started = clock()

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._started

    def keep(self, file: Path) -> None:
        """Write down the seconds that were used so far."""
        file.write_text(json.dumps({"seconds": self.seconds()}) + "\n")

    def go_on(self, file: Path) -> None:
        """Count the seconds that ``file`` keeps, where it is there, as used."""
        if file.exists():
            self._started -= json.loads(file.read_text())["seconds"]


class TimeBudget:
    """The minutes that a run may take; None for as many as it needs."""

    def __init__(self, stopwatch: Stopwatch, minutes: float | None) -> None:
        self.stopwatch = stopwatch
        self.minutes = minutes
        self._limit_s = math.inf if minutes is None else minutes * 60

    def left_s(self, margin: float = _MARGIN) -> float:
        """Return the seconds that are left, but for a share of all."""
        return self._limit_s * (1 - margin) - self.stopwatch.seconds()

    def must_end(self, ending_s: float) -> bool:
        """Return whether the run overstays unless its end, of so many seconds, begins now."""
        return self.left_s(_LAST_MARGIN) < ending_s

    def check(self, found: str) -> None:
        """Raise the refusal where no time is left."""
        if self.left_s() <= 0:
            raise self.refusal(found)

    def refusal(self, found: str) -> ConfigError:
        """Return the error of a run whose time is over. ``found``: what there is so far, all of it kept."""
        details = {
            "requested": f"--max-minutes {self.minutes}",
            "found": f"{found} after {self.stopwatch.seconds() / 60:.1f} minutes; all of it is kept",
            "options": "--resume with a larger --max-minutes: the minutes used so far count",
        }
        return ConfigError("no time is left to train in", details)


class StepTimer:
    """Times a stretch of steps, behind a few that get warm. Steps differ: the time is of a unit of their work."""

    def __init__(self, budget: TimeBudget, synchronize: Callable[[], None]) -> None:
        """``synchronize`` waits for what was launched."""
        self._seconds, self._synchronize = budget.stopwatch.seconds, synchronize
        self._limit_s = budget.left_s() * _TIMED_SHARE
        self._steps = self._work = 0
        self._started = 0.0
        self.unit_s = 0.0
        """Seconds for a unit of work, once the stretch is over."""

    def is_over(self, work: int) -> bool:
        """Tell that a step of ``work`` units was launched; return whether the stretch ends with it."""
        self._steps += 1
        if self._steps <= _WARM_STEPS:
            if self._steps == _WARM_STEPS:
                self._started = self._now()
            return False
        self._work += work
        if self._steps < _WARM_STEPS + _TIMED_STEPS and self._seconds() < self._started + self._limit_s:
            return False
        self.unit_s = (self._now() - self._started) / self._work
        return True

    def _now(self) -> float:
        self._synchronize()
        return self._seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the parts of a training take, and how often two of them come."""

    unit_s: float
    evaluation_s: float
    checkpoint_s: float
    evaluate_every: int
    checkpoint_every: int

    def steps_that_fit(self, work: Sequence[int], done: int, left_s: float) -> int:
        """Return how many steps fit, the ``done`` ones included, with an evaluation and a checkpoint at the end.

        ``work``: of each step of the whole plan, in units; ``left_s``: the seconds from now on.
        """
        steps_s = 0.0
        for step in range(done, len(work)):
            steps_s += work[step] * self.unit_s
            evaluations_s = _times(self.evaluate_every, done, step + 1) * self.evaluation_s
            if steps_s + evaluations_s + _times(self.checkpoint_every, done, step + 1) * self.checkpoint_s > left_s:
                return step
        return len(work)


def _times(every: int, done: int, end: int) -> int:
    """Return how often something comes after step ``done`` that comes every so many steps, and at the end."""
    return -(-end // every) - done // every
