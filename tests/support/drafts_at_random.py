"""A number of drafts for each step that nobody can foresee, but the same in every run."""

import random

from legato.engine.core import EngineCore
from legato.scheduler.draft_chooser import DraftChooser
from legato.scheduler.round_costs import RoundCosts


class RandomChoice(DraftChooser):
    """Takes any of the numbers, whatever it costs, and writes down which."""

    def __init__(self, costs: RoundCosts) -> None:
        self.taken: list[int] = []
        super().__init__(costs)

    def choose(self, num_reqs: int, num_judged: int) -> int:
        self.num_drafts = random.Random(len(self.taken)).choice(self.costs.num_drafts)
        self.taken.append(self.num_drafts)
        return self.num_drafts


def at_random(core: EngineCore) -> RandomChoice:
    """Let an engine that chooses take numbers at random."""
    chooser = RandomChoice(core._scheduler.chooser.costs)
    core._scheduler.chooser = chooser
    return chooser
