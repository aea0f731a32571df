"""The body of ``POST /v1/responses``, as pydantic reads it. Owns names and types, and which values are taken at all.

A field that is None or has one value alone is there for clients that always send it.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, JsonValue, Tag
from pydantic_core import PydanticCustomError

from legato.server.requests import Function, Part, SamplingBody


class Item(BaseModel):
    """One thing that happened in the conversation. What else it has, such as its id, is passed over."""

    model_config = ConfigDict(strict=True, extra="ignore")


class ContentPart(Item):
    """Text that was given, or generated."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class InputMessage(Item):
    """A message of any role."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ContentPart]


class InputCall(Item):
    """A call of a tool, as it was generated."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class InputCallOutput(Item):
    """What a call has brought."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[ContentPart]


class ReasoningPart(Item):
    """Reasoning that was generated."""

    type: Literal["reasoning_text"]
    text: str


class InputReasoning(Item):
    """The reasoning before a message or a call."""

    type: Literal["reasoning"]
    content: list[ReasoningPart] | None = None


def _kind(item: Any) -> Any:
    return item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")],
    Discriminator(
        _kind,
        custom_error_type="item",
        custom_error_message="an item is of type message, function_call, function_call_output or reasoning",
    ),
]


class FunctionTool(Function):
    """A function that the model may call."""

    type: Literal["function"]


def _is_function(tool: Any) -> Any:
    kind = tool.get("type", "function") if isinstance(tool, dict) else "function"
    if kind != "function":
        raise PydanticCustomError("tool", "only tools of type function are supported")
    return tool


class FunctionChoice(Part):
    """The one function that must be called."""

    type: Literal["function"]
    name: str


class TextFormat(Part):
    """The form that the text must have."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: JsonValue = Field(None, alias="schema")
    strict: bool | None = None
    """Accepted without effect: every schema is held to."""


class TextConfig(Part):
    """How the text is to be."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(Part):
    """Of OpenAI's models; templates have variables for it, in ``chat_template_kwargs``."""

    effort: None = None
    summary: None = None
    generate_summary: None = None


class EventOptions(Part):
    """What a stream carries besides the answer."""

    include_obfuscation: bool | None = None
    """Accepted without effect: events are not padded against traffic analysis."""


class ResponsesBody(SamplingBody):
    """``POST /v1/responses``."""

    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: TextConfig | None = None
    tools: list[Annotated[FunctionTool, BeforeValidator(_is_function)]] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    metadata: dict[str, str] | None = None
    """Given back."""
    stream_options: EventOptions | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    """Accepted without effect: reasoning comes as it is, and may be sent back so."""
    max_tool_calls: int | None = None
    """Accepted without effect: it is about tools that a server runs."""
    store: bool | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    conversation: None = None
    prompt: None = None
    reasoning: ReasoningConfig | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    truncation: Literal["disabled"] | None = None
