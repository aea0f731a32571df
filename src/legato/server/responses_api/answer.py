"""Answers of ``/v1/responses``. Owns their fields, in OpenAI's names; written by msgspec."""

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
