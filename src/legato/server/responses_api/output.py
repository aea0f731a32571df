"""The parts of a message -> the items of a response, and the events that tell of them as they come."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from legato.server.message import call_id
from legato.server.parsers.pieces import Arguments, CallStart, Content, Piece, Reasoning
from legato.server.responses_api.answer import (
    Item,
    ItemStatus,
    OutputCall,
    OutputMessage,
    OutputReasoning,
    OutputText,
    Part,
    ReasoningText,
)
from legato.server.responses_api.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Event,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    TextDone,
)


class Output:
    """Takes the pieces of one message. An item ends where a piece of another one begins, and at the end."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        """Of the stream's events."""
        self._open: _Open | None = None
        self.items: list[Item] = []
        """Those that have ended."""

    def add(self, pieces: Iterable[Piece]) -> Iterator[Event]:
        """Yield the events of more pieces."""
        for piece in pieces:
            if self._open is None or not self._open.takes(piece):
                yield from self._end("completed")
                yield from self._begin(piece)
            if not isinstance(piece, CallStart) and self._open is not None:
                yield self._open.more(piece.text)

    def finish(self, status: ItemStatus) -> Iterator[Event]:
        """Yield the events of the end; a message in which there is nothing is an empty one."""
        if self._open is None and not self.items:
            yield from self._begin(Content(""))
        yield from self._end(status)

    def _begin(self, piece: Piece) -> Iterator[Event]:
        index = len(self.items)
        match piece:
            case CallStart(name):
                self._open = _Call(self._numbers, index, name)
            case Reasoning():
                self._open = _Text(self._numbers, index, _REASONING)
            case _:
                self._open = _Text(self._numbers, index, _MESSAGE)
        yield from self._open.begin()

    def _end(self, status: ItemStatus) -> Iterator[Event]:
        if self._open is not None:
            yield from self._open.end(status)
            self.items.append(self._open.item(status))
            self._open = None


class _Open(ABC):
    """An item that is being written."""

    def __init__(self, numbers: Iterator[int], index: int, prefix: str) -> None:
        self._numbers = numbers
        self._index = index
        self._id = f"{prefix}_{uuid.uuid4().hex}"
        self._text = ""

    @abstractmethod
    def takes(self, piece: Piece) -> bool:
        """Return whether ``piece`` is a further part of this item."""

    @abstractmethod
    def item(self, status: ItemStatus) -> Item:
        """Return the item as it is now."""

    @abstractmethod
    def begin(self) -> Iterator[Event]: ...

    @abstractmethod
    def more(self, text: str) -> Event: ...

    @abstractmethod
    def end(self, status: ItemStatus) -> Iterator[Event]: ...

    def _added(self, item: Item) -> Event:
        return ItemAdded(sequence_number=next(self._numbers), output_index=self._index, item=item)

    def _done(self, status: ItemStatus) -> Event:
        return ItemDone(sequence_number=next(self._numbers), output_index=self._index, item=self.item(status))

    def _place(self) -> dict[str, Any]:
        return {"sequence_number": next(self._numbers), "item_id": self._id, "output_index": self._index}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextKind:
    """What tells a message from a reasoning."""

    prefix: str
    piece: type[Content] | type[Reasoning]
    item: Callable[..., Item]
    part: Callable[..., Part]
    delta: Callable[..., Event]
    done: Callable[..., Event]


_MESSAGE = _TextKind(prefix="msg", piece=Content, item=OutputMessage, part=OutputText, delta=TextDelta, done=TextDone)
_REASONING = _TextKind(
    prefix="rs", piece=Reasoning, item=OutputReasoning, part=ReasoningText, delta=ReasoningDelta, done=ReasoningDone
)


class _Text(_Open):
    """An item of one part, its text."""

    def __init__(self, numbers: Iterator[int], index: int, kind: _TextKind) -> None:
        super().__init__(numbers, index, kind.prefix)
        self._kind = kind

    def takes(self, piece: Piece) -> bool:
        return isinstance(piece, self._kind.piece)

    def item(self, status: ItemStatus) -> Item:
        return self._kind.item(id=self._id, status=status, content=[self._part()])

    def begin(self) -> Iterator[Event]:
        yield self._added(self._kind.item(id=self._id, status="in_progress", content=[]))
        yield PartAdded(**self._place(), part=self._part())

    def more(self, text: str) -> Event:
        self._text += text
        return self._kind.delta(**self._place(), delta=text)

    def end(self, status: ItemStatus) -> Iterator[Event]:
        yield self._kind.done(**self._place(), text=self._text)
        yield PartDone(**self._place(), part=self._part())
        yield self._done(status)

    def _part(self) -> Part:
        return self._kind.part(text=self._text)


class _Call(_Open):
    """A call, whose text is its arguments."""

    def __init__(self, numbers: Iterator[int], index: int, name: str) -> None:
        super().__init__(numbers, index, "fc")
        self._call_id = call_id()
        self._name = name

    def takes(self, piece: Piece) -> bool:
        return isinstance(piece, Arguments)

    def item(self, status: ItemStatus) -> Item:
        return OutputCall(id=self._id, call_id=self._call_id, name=self._name, arguments=self._text, status=status)

    def begin(self) -> Iterator[Event]:
        yield self._added(self.item("in_progress"))

    def more(self, text: str) -> Event:
        self._text += text
        return ArgumentsDelta(**self._place(), delta=text)

    def end(self, status: ItemStatus) -> Iterator[Event]:
        yield ArgumentsDone(**self._place(), name=self._name, arguments=self._text)
        yield self._done(status)
