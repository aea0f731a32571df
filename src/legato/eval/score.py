"""How many answers are right, and how sure that is. Owns the counts and the confidence interval; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from legato.eval.gsm8k import Question, is_right, match

_Z_95 = 1.959963984540054
"""Two-sided 95 % point of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """A share of right answers with its 95 % interval (Wilson, JASA 22, 1927)."""

    num_right: int
    num_questions: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All answers of one run, judged."""

    strict: Accuracy
    """The number behind ``####``."""
    flexible: Accuracy
    """The last number, whatever stands before it."""
    num_without_mark: int
    """Answers without a number behind ``####``."""
    num_invalid: int
    """Answers without any number."""


def judge(questions: Sequence[Question], texts: Sequence[str]) -> Score:
    """Judge one text per question."""
    found = [match(text) for text in texts]
    pairs = list(zip(found, questions, strict=True))
    return Score(
        strict=accuracy(sum(is_right(one.strict, question) for one, question in pairs), len(pairs)),
        flexible=accuracy(sum(is_right(one.flexible, question) for one, question in pairs), len(pairs)),
        num_without_mark=sum(one.strict is None for one in found),
        num_invalid=sum(one.flexible is None for one in found),
    )


def accuracy(num_right: int, num_questions: int) -> Accuracy:
    """Return the share with its interval; of no question, anything is possible."""
    if num_questions == 0:
        return Accuracy(num_right=0, num_questions=0, share=0.0, low=0.0, high=1.0)
    share = num_right / num_questions
    spread = _Z_95**2 / num_questions
    middle = share + spread / 2
    half = _Z_95 * math.sqrt(share * (1 - share) / num_questions + spread / (4 * num_questions))
    return Accuracy(
        num_right=num_right,
        num_questions=num_questions,
        share=share,
        low=max(0.0, min(share, (middle - half) / (1 + spread))),  # rounding must not take it past the share
        high=min(1.0, max(share, (middle + half) / (1 + spread))),
    )
