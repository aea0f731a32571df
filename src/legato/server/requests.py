"""Request bodies, as pydantic reads them. Owns names and types; ranges are the engine's to judge.

Types are strict, as in OpenAI's interface: ``"5"`` and ``true`` are not numbers.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

TokenId = Annotated[int, Field(ge=0)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True)]
"""The first wrong item is told, not each of a million."""


class Body(BaseModel):
    """A request body. Fields that are not declared are kept aside, to be judged by name."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())

    model: str | None = None


class Part(BaseModel):
    """A part of a request body; it has no fields but those declared."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class StreamOptions(Part):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None
    """Accepted without effect: chunks are not padded against traffic analysis."""


class JsonSchemaFormat(Part):
    """The schema of a ``response_format``."""

    name: str | None = None
    description: str | None = None
    schema_: JsonValue = Field(None, alias="schema")
    strict: bool | None = None
    """Accepted without effect: every schema is held to."""


class ResponseFormat(Part):
    """OpenAI's form of a guide."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(Part):
    """vLLM's form of a guide."""

    json_: str | dict[str, JsonValue] | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    disable_any_whitespace: bool | None = None


class SamplingBody(Body):
    """What all generating routes have in common."""

    stream: bool | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    """0 and -1 both mean: all tokens."""
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    """Token id, as a string -> value from -100 to 100 added to its logit."""
    allowed_token_ids: TokenIds | None = None
    bad_words: list[str] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    """Lower runs earlier, where the engine schedules by priority."""
    add_special_tokens: bool | None = None


class GenerationBody(SamplingBody):
    """What completions and chats have in common."""

    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, JsonValue] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    """Give token ids beside the text, for models without a tokenizer above all."""


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: (
        str | Annotated[list[str], Field(fail_fast=True)] | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)]
    )
    echo: bool | None = None
    logprobs: int | None = None


class TextPart(Part):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation; what else it has is for the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    """None: an assistant's message that does nothing but call tools."""


class NamedFunction(BaseModel):
    """A function by its name."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str


class ToolChoice(Part):
    """The one tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class Function(BaseModel):
    """A function that the model may call; all that is said of it is for the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class Tool(Part):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None


class TokenizeBody(Body):
    """``POST /tokenize``: a prompt, or a conversation."""

    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """``POST /detokenize``."""

    tokens: TokenIds


def extras(body: Body) -> dict[str, Any]:
    """Return the fields that ``body``'s class does not declare."""
    return body.model_extra or {}
