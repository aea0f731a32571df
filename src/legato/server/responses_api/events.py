"""The events of a stream of ``/v1/responses``. Owns their names and fields, which are OpenAI's."""

import msgspec

from legato.server.responses_api.answer import Item, Part, Responses


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One event of a stream."""

    sequence_number: int
    """Counts the events of the stream, from 0."""


class _OfResponse(Event, frozen=True, kw_only=True):
    response: Responses


class Created(_OfResponse, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""


class InProgress(_OfResponse, frozen=True, kw_only=True, tag="response.in_progress"):
    """The model is at work."""


class _WithItem(Event, frozen=True, kw_only=True):
    output_index: int
    item: Item


class ItemAdded(_WithItem, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""


class ItemDone(_WithItem, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""


class _OfItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _OfPart(_OfItem, frozen=True, kw_only=True):
    content_index: int = 0
    """An item has one part."""


class _WithPart(_OfPart, frozen=True, kw_only=True):
    part: Part


class PartAdded(_WithPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    """The text of an item begins."""


class PartDone(_WithPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    """The text of an item is whole."""


class TextDelta(_OfPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More text of a message."""

    delta: str
    logprobs: tuple[()] = ()


class TextDone(_OfPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    """The text of a message is whole."""

    text: str
    logprobs: tuple[()] = ()


class ReasoningDelta(_OfPart, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More text of a reasoning."""

    delta: str


class ReasoningDone(_OfPart, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """The text of a reasoning is whole."""

    text: str


class ArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of the arguments of a call."""

    delta: str


class ArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """The arguments of a call are whole."""

    name: str
    arguments: str


class Completed(_OfResponse, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of an answer that the model has ended."""


class EndedEarly(_OfResponse, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of an answer that was cut off."""


class Failed(_OfResponse, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of a stream that could not go on."""


ResponsesEvent = (
    Created
    | InProgress
    | ItemAdded
    | PartAdded
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | PartDone
    | ArgumentsDelta
    | ArgumentsDone
    | ItemDone
    | Completed
    | EndedEarly
    | Failed
)
