"""The parts of a message that parsers tell of, and what every parser can do. Knows no model and no HTTP."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of the call that started last, as JSON text."""

    text: str


Piece = Content | Reasoning | CallStart | Arguments


class Parser(Protocol):
    """Takes one message's text as it comes. However the text is cut, the pieces joined are the same."""

    def add(self, text: str) -> list[Piece]:
        """Return what is certain now."""
        ...

    def finish(self) -> list[Piece]:
        """Return what was held back for what might have followed; nothing follows."""
        ...


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with neighbours of one kind as one, and without empty text."""
    whole: list[Piece] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        match last, piece:
            case _, Content("") | Reasoning("") | Arguments(""):
                pass
            case Content(before), Content(text):
                whole[-1] = Content(before + text)
            case Reasoning(before), Reasoning(text):
                whole[-1] = Reasoning(before + text)
            case Arguments(before), Arguments(text):
                whole[-1] = Arguments(before + text)
            case _:
                whole.append(piece)
    return whole
