"""Files of prompts: JSON and JSONL, and the shapes that known data sets have. Owns how they are read.

==============  =========  ==========================================================================================
data set        file       one record
==============  =========  ==========================================================================================
``sharegpt``    JSON list  ``{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}, …]}``
``mt-bench``    JSONL      ``{"question_id": …, "category": …, "turns": [first, …]}``
``spec-bench``  JSONL      as ``mt-bench``
``gsm8k``       JSONL      ``{"question": …, "answer": …}``
``custom``      JSONL      ``{"prompt": text or token ids}``, and ``"output_tokens": N`` where it is known
==============  =========  ==========================================================================================
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from legato.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a file."""

    content: str | tuple[int, ...]
    answer: str | None = None
    """The answer in the file, whose length is the output's where nothing else says it."""
    output_len: int | None = None
    category: str | None = None


class _Turn(msgspec.Struct):
    source: str = msgspec.field(name="from")
    value: str = ""


class _Conversation(msgspec.Struct):
    conversations: list[_Turn] = []


class _Question(msgspec.Struct):
    turns: list[str]
    category: str | None = None


class _Problem(msgspec.Struct):
    question: str


class _Custom(msgspec.Struct):
    prompt: str | list[int]
    output_tokens: int | None = None


def read_entries(dataset: str, path: Path) -> list[Entry]:
    """Return a file's records. Raises ConfigError for a file that cannot be read, naming the line, or has none."""
    read, kind, entry = _SHAPES[dataset]
    try:
        entries = [found for value in read(path, kind) if (found := entry(value)) is not None]
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        details = {"requested": f"--dataset-path {path}", "found": error, "limit": f"the shape of {dataset}"}
        raise ConfigError("the prompts cannot be read", details) from error
    if not entries:
        raise ConfigError("there is no prompt in the file", {"requested": f"--dataset-path {path}"})
    return entries


def _lines(path: Path, kind: Any) -> list[Any]:
    values = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                values.append(msgspec.json.decode(line, type=kind))
            except msgspec.DecodeError as error:
                raise msgspec.DecodeError(f"line {number}: {error}") from error
    return values


def _whole(path: Path, kind: Any) -> list[Any]:
    value: list[Any] = msgspec.json.decode(path.read_bytes(), type=list[kind])
    return value


def _conversation(value: _Conversation) -> Entry | None:
    """Return the first turn of a person that is answered, with the answer."""
    turns = value.conversations
    for asked, answered in itertools.pairwise(turns):
        if asked.source in ("human", "user") and answered.source in ("gpt", "assistant", "chatgpt", "bing", "bard"):
            return Entry(content=asked.value, answer=answered.value)
    return None


def _question(value: _Question) -> Entry | None:
    return Entry(content=value.turns[0], category=value.category) if value.turns else None


def _problem(value: _Problem) -> Entry:
    return Entry(content=f"Question: {value.question}\nAnswer:")


def _custom(value: _Custom) -> Entry | None:
    content = value.prompt if isinstance(value.prompt, str) else tuple(value.prompt)
    return Entry(content=content, output_len=value.output_tokens) if content else None


_Shape = tuple[Callable[[Path, Any], list[Any]], type, Callable[[Any], Entry | None]]
_SHAPES: dict[str, _Shape] = {
    "sharegpt": (_whole, _Conversation, _conversation),
    "mt-bench": (_lines, _Question, _question),
    "spec-bench": (_lines, _Question, _question),
    "gsm8k": (_lines, _Problem, _problem),
    "custom": (_lines, _Custom, _custom),
}
FILES = tuple(_SHAPES)
"""The data sets that are read from a file."""
