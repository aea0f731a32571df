"""Response bodies and stream chunks. Owns their fields, in OpenAI's names; written by msgspec, once per token.

UNSET fields are left out; None is written as null, where OpenAI's clients expect one.
"""

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from legato.flow.request_update import FinishReason


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Where prompt tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request, all its prompts and choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of a completion, one entry per token in each list."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct, frozen=True):
    """One candidate at one position of a prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One completion, or what is new of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/completions``, whole or one chunk."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate at one position."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token, with the best candidates at its position."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of a message."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatFinishReason(StrEnum):
    """Why a message ended: as any output, or with what it calls."""

    STOP = FinishReason.STOP
    LENGTH = FinishReason.LENGTH
    TOOL_CALLS = "tool_calls"


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is called."""

    name: str
    arguments: str
    """JSON, as the model wrote it."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    id: str
    type: str = "function"
    function: FunctionCall


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of a call: its name comes first, once, then piece by piece its arguments."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of one call of a message; ``id`` and ``type`` come with its name."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message that was generated."""

    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    role: str = "assistant"
    refusal: None = None


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of a message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One whole message."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    stop_reason: int | str | None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of one choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/chat/completions``."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of a streamed chat answer."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
