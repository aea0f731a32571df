"""One choice's text -> the fields of its message, whole or as deltas. Owns the ids of calls and their numbers."""

import uuid
from collections.abc import Iterator
from itertools import chain

from msgspec import UNSET

from legato.server.parsers.pieces import Arguments, CallStart, Content, Parser, Piece, Reasoning
from legato.server.responses import ChatDelta, ChatMessage, FunctionCall, FunctionDelta, ToolCall, ToolCallDelta


class MessageReader:
    """Reads one message as it comes. ``begun`` is the start of a call that stands in the prompt already."""

    def __init__(self, parser: Parser, *, begun: str = "", parallel: bool = True) -> None:
        self._parser = parser
        self._begun = begun
        self._parallel = parallel
        self._num_calls = 0

    @property
    def called(self) -> bool:
        """Whether the message calls a tool."""
        return self._num_calls > 0

    def delta(self, text: str, *, ended: bool) -> ChatDelta:
        """Return what ``text`` adds to the message."""
        content, reasoning, calls = "", "", dict[int, ToolCallDelta]()
        for piece in self.pieces(text, ended=ended):
            match piece:
                case Content(more):
                    content += more
                case Reasoning(more):
                    reasoning += more
                case CallStart(name):
                    self._change(calls, id=call_id(), type="function", name=name)
                case Arguments(more):
                    self._change(calls, arguments=more)
        return ChatDelta(
            content=content or UNSET, reasoning_content=reasoning or UNSET, tool_calls=list(calls.values()) or UNSET
        )

    def whole(self, text: str) -> ChatMessage:
        """Return the message that ``text`` is."""
        delta = self.delta(text, ended=True)
        calls = [_call(call) for call in delta.tool_calls or ()]
        return ChatMessage(
            content=delta.content or (None if calls else ""),
            reasoning_content=delta.reasoning_content,
            tool_calls=calls or UNSET,
        )

    def pieces(self, text: str, *, ended: bool) -> Iterator[Piece]:
        """Yield the parts of the message that ``text`` adds; of calls only the first where they are not parallel."""
        begun, self._begun = self._begun, ""
        for piece in chain(self._parser.add(begun + text), self._parser.finish() if ended else ()):
            if isinstance(piece, CallStart):
                self._num_calls += 1
            if self._parallel or self._num_calls < 2 or not isinstance(piece, CallStart | Arguments):
                yield piece

    def _change(self, calls: dict[int, ToolCallDelta], *, arguments: str = "", **first: str) -> None:
        """Add to the delta of the call that started last."""
        index = self._num_calls - 1
        name = first.pop("name", None)
        before = calls.get(index)
        if before is None:
            function = FunctionDelta(name=UNSET if name is None else name, arguments=arguments)
            calls[index] = ToolCallDelta(index=index, function=function, **first)
        else:
            function = FunctionDelta(name=before.function.name, arguments=before.function.arguments + arguments)
            calls[index] = ToolCallDelta(index=index, function=function, id=before.id, type=before.type)


def _call(whole: ToolCallDelta) -> ToolCall:
    name, arguments = whole.function.name or "", whole.function.arguments
    return ToolCall(id=whole.id or "", function=FunctionCall(name=name, arguments=arguments))


def call_id() -> str:
    """Return an id for a new call."""
    return f"call_{uuid.uuid4().hex}"
