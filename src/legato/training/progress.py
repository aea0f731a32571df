"""Whom a run tells how it goes. The command line implements it; a run knows no terminal."""

from collections.abc import Callable
from typing import Protocol

from legato.training.acceptance import Evaluation


class RunProgress(Protocol):
    """Whom a run tells how it goes."""

    def note(self, text: str) -> None:
        """Say what was decided or found."""
        ...

    def answering(self, what: str, total: int) -> Callable[[int, int], None]:
        """Begin to generate; returns the function to tell (answers, tokens)."""
        ...

    def step(self, done: int, total: int, loss: float) -> None:
        """Tell the mean loss of the latest steps."""
        ...

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Tell how the head does on held-out prompts after ``step`` steps."""
        ...
