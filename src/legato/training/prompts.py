"""Files of prompts -> conversations that end with a user's turn. Owns the shapes of files; knows no tokenizer.

JSON lines with ``question`` (GSM8K), ``prompt``, ``turns`` (MT-Bench: the first) or ``messages``; or a JSON array, as
ShareGPT's, of ``conversations`` with ``from`` and ``value``. Of a conversation each user's turn makes a prompt, with
what stands before it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from legato.errors import ConfigError

Conversation = tuple[tuple[str, str], ...]
"""(role, content) of each message; the last is a user's."""

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
    "system": "system",
}
"""As files name them -> as chat templates do."""
_FORMS = "question | prompt | turns | messages with role and content | conversations with from and value"


def read_prompts(paths: Sequence[Path]) -> list[Conversation]:
    """Return the different prompts of the files, in their order.

    Raises ConfigError, naming file and line, or the entry of an array, for what is no prompt.
    """
    return list(dict.fromkeys(prompt for path in paths for prompt in _file_prompts(path)))


def _file_prompts(path: Path) -> list[Conversation]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the prompts cannot be read", {"requested": path, "found": error}) from error
    prompts = [prompt for place, entry in _entries(path, text) for prompt in _prompts_of(path, place, entry)]
    if not prompts:
        raise ConfigError("there is no prompt in the file", {"requested": path, "options": _FORMS})
    return prompts


def _entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield each entry of the file with where it stands."""
    if text.lstrip().startswith("["):
        for number, entry in enumerate(_parsed(path, text, 1)):
            yield f"entry {number}", entry
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield f"line {number}", _parsed(path, line, number)


def _parsed(path: Path, text: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        details = {"requested": path, "found": f"line {line}: {error.msg}", "options": "JSON lines | a JSON array"}
        raise ConfigError("a file of prompts is no JSON", details) from error


def _prompts_of(path: Path, place: str, entry: Any) -> Iterator[Conversation]:
    try:
        yield from _conversations(entry)
    except (KeyError, TypeError, IndexError) as error:
        found = f"{place}: {type(error).__name__}: {error}"
        raise ConfigError("an entry is no prompt", {"requested": path, "found": found, "options": _FORMS}) from error


def _conversations(entry: Any) -> Iterator[Conversation]:
    """Yield the prompts of one entry. Raises KeyError, TypeError or IndexError where it has another form."""
    if "conversations" in entry:
        yield from _user_turns([(turn["from"], turn["value"]) for turn in entry["conversations"]])
    elif "messages" in entry:
        yield from _user_turns([(message["role"], message["content"]) for message in entry["messages"]])
    elif "turns" in entry:
        yield from _user_turns([("user", entry["turns"][0])])
    else:
        yield from _user_turns([("user", entry["question"] if "question" in entry else entry["prompt"])])


def _user_turns(turns: list[tuple[str, str]]) -> Iterator[Conversation]:
    messages = []
    for role, content in turns:
        if not isinstance(content, str):
            raise TypeError(f"a text was expected, not {content!r}")
        messages.append((_ROLES[role], content))
        if _ROLES[role] == "user" and content.strip():
            yield tuple(messages)
