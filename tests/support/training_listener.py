"""Whom a training run tells how it goes, in a test: keeps it all, and acts at a step."""

from collections.abc import Callable

from legato.training.acceptance import Evaluation


def nothing(step: int) -> None:
    """Do nothing at any step."""


class Listener:
    """Keeps what a run tells."""

    def __init__(self, at_step: Callable[[int], None] = nothing) -> None:
        """``at_step`` is called with the steps that were taken, whenever the run tells of them."""
        self.notes: list[str] = []
        self.answered: list[str] = []
        self.losses: list[float] = []
        self.evaluations: list[Evaluation] = []
        self.evaluated_at: list[int] = []
        self.total = 0
        self._at_step = at_step

    def note(self, text: str) -> None:
        self.notes.append(text)

    def answering(self, what: str, total: int) -> Callable[[int, int], None]:
        self.answered.append(what)
        return lambda done, num_tokens: None

    def step(self, done: int, total: int, loss: float) -> None:
        self.losses.append(loss)
        self.total = total
        self._at_step(done)

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)
        self.evaluated_at.append(step)
