"""What an evaluation asks: the same whoever answers. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass

from legato.eval.gsm8k import STOP, Prompt, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """One prompt per question, answered greedily."""

    questions: Sequence[Question]
    prompts: Sequence[Prompt]
    max_tokens: int
    case: str
    """Name in rows: what is asked, and with how many examples."""
    stop: tuple[str, ...] = STOP
