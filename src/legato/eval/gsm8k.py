"""GSM8K (arXiv 2110.14168): its file, its prompts, and what counts as a right answer. Pure; knows no engine.

Prompt, stop strings, draws of examples and both matches are those of the ``gsm8k`` task of EleutherAI's
lm-evaluation-harness, so that the harness gives the same score for the same questions.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legato.errors import ConfigError

STOP = ("Question:", "</s>", "<|im_end|>")
SHOTS_SEED = 1234
"""With which the harness draws examples."""

Messages = tuple[dict[str, str], ...]
"""A conversation: each message with ``role`` and ``content``."""
Prompt = str | Messages

_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = (re.compile(","), re.compile(r"\$"), re.compile(r"(?s).*#### "), re.compile(r"\.$"))
"""What does not matter where two numbers are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One problem in words, with a worked answer that ends with ``#### NUMBER``."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What a model's answer contains, as written; None: nothing of the kind."""

    strict: str | None
    """The first number behind ``####``."""
    flexible: str | None
    """The last number."""


def read_questions(path: Path) -> list[Question]:
    """Return the problems of a JSONL file with ``question`` and ``answer``. Raises ConfigError, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the questions cannot be read", {"requested": path, "found": error}) from error
    questions = [_question(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not questions:
        raise ConfigError("there is no question in the file", {"requested": path})
    return questions


def prompts(
    questions: Sequence[Question],
    pool: Sequence[Question],
    *,
    num_shots: int,
    among: bool,
    seed: int = SHOTS_SEED,
    chat: bool = False,
) -> list[Prompt]:
    """Return one prompt per question, with ``num_shots`` examples that are drawn from ``pool`` anew for each.

    ``among``: the questions are of the pool themselves, and none is its own example. ``chat``: each prompt is a
    conversation, in which the examples are turns before. Raises ConfigError for a pool that is too small.
    """
    wanted = num_shots + among if num_shots else 0
    if wanted > len(pool):
        details = {"requested": f"--num-shots {num_shots}", "found": f"{len(pool)} examples", "limit": wanted}
        raise ConfigError("there are too few examples to draw from", details)
    draw = random.Random(seed)
    spelled = _conversation if chat else _text
    return [spelled(question, _examples(question, draw.sample(pool, wanted), num_shots)) for question in questions]


def match(text: str) -> Match:
    """Return the numbers that a model's answer gives."""
    strict, flexible = _STRICT.findall(text), _FLEXIBLE.findall(text)
    last = next(filter(None, flexible[-1])).strip() if flexible else None
    return Match(strict=strict[0].strip() if strict else None, flexible=last)


def is_right(number: str | None, question: Question) -> bool:
    """Return whether a number is the one that the worked answer ends with."""
    return number is not None and _compared(number) == _compared(question.answer)


def _question(path: Path, number: int, line: str) -> Question:
    try:
        value = json.loads(line)
        question, answer = value["question"], value["answer"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        details = {"requested": path, "found": f"line {number}: {error!r}", "options": "JSON with question and answer"}
        raise ConfigError("a line is no question", details) from error
    if not isinstance(question, str) or not isinstance(answer, str):
        raise ConfigError("question and answer are texts", {"requested": path, "found": f"line {number}"})
    return Question(question=question, answer=answer)


def _examples(question: Question, drawn: Sequence[Question], num_shots: int) -> list[Question]:
    return [example for example in drawn if example != question][:num_shots]


def _text(question: Question, examples: Sequence[Question]) -> str:
    return "".join(f"{_asked(example)} {example.answer}\n\n" for example in examples) + _asked(question)


def _conversation(question: Question, examples: Sequence[Question]) -> Messages:
    turns = [turn for one in examples for turn in (("user", _asked(one)), ("assistant", one.answer))]
    return tuple({"role": role, "content": content} for role, content in [*turns, ("user", _asked(question))])


def _asked(question: Question) -> str:
    return f"Question: {question.question}\nAnswer:"


def _compared(text: str) -> str:
    for pattern in _IGNORED:
        text = pattern.sub("", text)
    return text.lower()
