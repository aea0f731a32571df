"""One tool call written as a JSON object, read character by character.

The object has ``name`` and ``arguments`` (``parameters`` in Llama's words), in any order. The name must be that of a
declared tool: an answer that merely looks like a call stays an answer.
"""

import json
from collections.abc import Callable
from enum import Enum, auto

from legato.server.parsers.pieces import Arguments, CallStart, Piece

ARGUMENT_KEYS = frozenset({"arguments", "parameters"})
NO_ARGUMENTS = "{}"


class Status(Enum):
    """How far a call has been read."""

    READING = auto()
    DONE = auto()
    """The object has ended, and a call was made of it."""
    FAILED = auto()
    """What was read last does not belong to a call."""


class CallReader:
    """Reads one object. Until a call has started, what was read stays in ``raw``, for the case that it is none."""

    def __init__(self, names: frozenset[str]) -> None:
        self.status = Status.READING
        self.started = False
        self.raw = ""
        self._names = names
        self._state: Callable[[str], list[Piece]] = self._before_object
        self._token: list[str] = []
        self._key = ""
        self._depth = 0
        self._in_string = self._escaped = False
        self._streams = False
        """The value being read is handed on as it comes."""
        self._waiting: str | None = None
        """Arguments that came before the name."""
        self._had_arguments = False

    def add(self, character: str) -> list[Piece]:
        """Take one character; the one that makes the reading fail is not part of ``raw``."""
        pieces = self._state(character)
        if self.status is not Status.FAILED and not self.started:
            self.raw += character
        return pieces

    def _fail(self) -> list[Piece]:
        self.status = Status.FAILED
        return []

    def _before_object(self, character: str) -> list[Piece]:
        if character.isspace():
            return []
        return self._go(self._before_key) if character == "{" else self._fail()

    def _before_key(self, character: str) -> list[Piece]:
        if character == "}":
            return self._end_object()
        if character == '"':
            self._token = [character]
            return self._go(self._in_key)
        return [] if character.isspace() else self._fail()

    def _in_key(self, character: str) -> list[Piece]:
        self._token.append(character)
        if not self._string_ends(character):
            return []
        key = _decoded("".join(self._token))
        if not isinstance(key, str):
            return self._fail()
        self._key = key
        return self._go(self._before_colon)

    def _before_colon(self, character: str) -> list[Piece]:
        if character == ":":
            return self._go(self._before_value)
        return [] if character.isspace() else self._fail()

    def _before_value(self, character: str) -> list[Piece]:
        if character.isspace():
            return []
        if character in ",:}]":
            return self._fail()
        arguments = self._key in ARGUMENT_KEYS
        if arguments and self._had_arguments:
            return self._fail()
        self._streams = arguments and character == "{"
        self._token, self._depth = [], 0
        if character == '"':
            self._token = [character]
            return self._go(self._in_text)
        if character in "{[":
            self._state = self._in_brackets
            return self._in_brackets(character)
        self._token = [character]
        return self._go(self._in_scalar)

    def _in_text(self, character: str) -> list[Piece]:
        self._token.append(character)
        return self._end_value() if self._string_ends(character) else []

    def _in_brackets(self, character: str) -> list[Piece]:
        self._token.append(character)
        if self._in_string:
            self._in_string = not self._string_ends(character)
        elif character == '"':
            self._in_string = True
        else:
            self._depth += (character in "{[") - (character in "}]")
        ended = self._depth == 0
        if not (self._streams and self.started):
            return self._end_value() if ended else []
        self._had_arguments = True
        self._token.clear()
        if ended:
            self._state = self._after_value
        return [Arguments(character)]

    def _in_scalar(self, character: str) -> list[Piece]:
        if not (character.isspace() or character in ",}"):
            self._token.append(character)
            return []
        pieces = self._end_value()
        return pieces if self.status is Status.FAILED else pieces + self._state(character)

    def _after_value(self, character: str) -> list[Piece]:
        if character == ",":
            return self._go(self._before_key)
        if character == "}":
            return self._end_object()
        return [] if character.isspace() else self._fail()

    def _end_value(self) -> list[Piece]:
        text, self._state = "".join(self._token), self._after_value
        if self._key == "name":
            return self._start(_decoded(text))
        if self._key in ARGUMENT_KEYS:
            return self._take_arguments(text)
        return []

    def _start(self, name: object) -> list[Piece]:
        if self.started or not isinstance(name, str) or name not in self._names:
            return self._fail()
        self.started = True
        pieces: list[Piece] = [CallStart(name)]
        if self._waiting is not None:
            pieces.append(Arguments(self._waiting))
        return pieces

    def _take_arguments(self, text: str) -> list[Piece]:
        """Take arguments that came in one piece: an object before the name, the object as a string, or null."""
        spelled = NO_ARGUMENTS if text == "null" else text if self._streams else _decoded(text)
        if not isinstance(spelled, str):
            return self._fail()
        self._had_arguments = True
        if self.started:
            return [Arguments(spelled)]
        self._waiting = spelled
        return []

    def _end_object(self) -> list[Piece]:
        if not self.started:
            return self._fail()
        self.status = Status.DONE
        return [] if self._had_arguments else [Arguments(NO_ARGUMENTS)]

    def _string_ends(self, character: str) -> bool:
        """Return whether ``character``, inside a string, is the quote that ends it."""
        if self._escaped:
            self._escaped = False
            return False
        self._escaped = character == "\\"
        return character == '"'

    def _go(self, state: Callable[[str], list[Piece]]) -> list[Piece]:
        self._state = state
        return []


def _decoded(text: str) -> object:
    """Return the JSON value of ``text``; None for what is none."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
