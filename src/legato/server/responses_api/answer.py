"""Answers of ``/v1/responses`` and events of its streams. Owns their fields, in OpenAI's names; written by msgspec."""

from typing import Any, Literal

import msgspec

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class ReasoningText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    """The text of a reasoning."""

    text: str


Part = OutputText | ReasoningText


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """Text for the reader."""

    id: str
    role: str = "assistant"
    status: ItemStatus
    content: list[OutputText]


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """Text that the model wrote for itself."""

    id: str
    status: ItemStatus
    summary: tuple[()] = ()
    content: list[ReasoningText]


class OutputCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a tool."""

    id: str
    call_id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""
    status: ItemStatus


Item = OutputMessage | OutputReasoning | OutputCall


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Where tokens of the input came from."""

    cached_tokens: int
    cache_write_tokens: int = 0
    """Nothing is charged for what is written to the cache, and so it is not counted."""


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What tokens of the output were for."""

    reasoning_tokens: int = 0
    """Not told apart from the others: 0."""


class ResponsesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one request."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class ResponsesError(msgspec.Struct, frozen=True):
    """Why there is no whole answer."""

    code: Literal["server_error", "invalid_prompt"]
    message: str


class Incomplete(msgspec.Struct, frozen=True):
    """Why the answer ends early."""

    reason: str = "max_output_tokens"


class Responses(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/responses``, whole or as far as it has come."""

    id: str
    object: str = "response"
    created_at: int
    status: Status
    error: ResponsesError | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    usage: ResponsesUsage | None = None
    background: bool = False
    previous_response_id: None = None
    store: bool = False
    truncation: str = "disabled"


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
