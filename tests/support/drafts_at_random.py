"""A number of drafts for each step that nobody can foresee, but the same in every run."""

import random

from legato.engine.core import EngineCore
from legato.scheduler.draft_chooser import DraftChooser


class RandomChoice(DraftChooser):
    """Takes any of the numbers, whatever it costs, and writes down which."""

    taken: list[int]

    def choose(self, num_reqs: int, num_judged: int) -> int:
        self.num_drafts = random.Random(len(self.taken)).choice(self.costs.num_drafts)
        self.taken.append(self.num_drafts)
        return self.num_drafts


def at_random(core: EngineCore) -> RandomChoice:
    """Let an engine that chooses take numbers at random."""
    chooser = RandomChoice(core._scheduler.chooser.costs)
    chooser.taken = []
    core._scheduler.chooser = chooser
    return chooser
