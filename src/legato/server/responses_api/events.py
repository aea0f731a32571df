"""The events of a stream of ``/v1/responses``. Owns their names and fields, which are OpenAI's."""

import msgspec

from legato.server.responses_api.answer import Item, Part, Responses


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One event of a stream."""

    sequence_number: int
    """Counts the events of the stream, from 0."""


class Created(Event, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""

    response: Responses


class InProgress(Event, frozen=True, kw_only=True, tag="response.in_progress"):
    """The model is at work."""

    response: Responses


class ItemAdded(Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""

    output_index: int
    item: Item


class ItemDone(Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: Item


class _OfItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _OfPart(_OfItem, frozen=True, kw_only=True):
    content_index: int = 0
    """An item has one part."""


class PartAdded(_OfPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    """The text of an item begins."""

    part: Part


class PartDone(_OfPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    """The text of an item is whole."""

    part: Part


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


class Completed(Event, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of an answer that the model has ended."""

    response: Responses


class EndedEarly(Event, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of an answer that was cut off."""

    response: Responses


class Failed(Event, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of a stream that could not go on."""

    response: Responses


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
