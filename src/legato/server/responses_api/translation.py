"""A body of ``/v1/responses`` as one of ``/v1/chat/completions``, and errors back. Owns what is called how in which."""

import re
from typing import Any

from legato.server.errors import ApiError
from legato.server.requests import (
    ChatBody,
    Function,
    JsonSchemaFormat,
    Message,
    NamedFunction,
    ResponseFormat,
    SamplingBody,
    Tool,
    ToolChoice,
)
from legato.server.responses_api.body import (
    ContentPart,
    FunctionChoice,
    FunctionTool,
    InputCall,
    InputCallOutput,
    InputMessage,
    InputReasoning,
    ResponsesBody,
    TextConfig,
)

NAMES = {"messages": "input", "prompt": "input", "max_tokens": "max_output_tokens", "response_format": "text"}
"""What a chat's refusals name -> the field that it is made of, where they differ."""
SAME = (*SamplingBody.model_fields, "parallel_tool_calls", "chat_template_kwargs")
"""Fields that both have."""


def as_chat(body: ResponsesBody) -> ChatBody:
    """Return the chat that ``body`` asks to continue; raises ApiError for what needs a memory of earlier answers."""
    for field in ("previous_response_id", "store", "background"):
        if getattr(body, field):
            message = f"{field}: this server keeps no responses; send what was said before as input"
            raise ApiError(400, message, param=field, code="unsupported_value")
    choice = body.tool_choice
    return ChatBody.model_construct(
        **{name: getattr(body, name) for name in SAME},
        messages=_messages(body),
        max_completion_tokens=body.max_output_tokens,
        response_format=_response_format(body.text),
        tools=None if body.tools is None else [_tool(tool) for tool in body.tools],
        tool_choice=_tool_choice(choice) if isinstance(choice, FunctionChoice) else choice,
    )


def renamed(error: ApiError) -> ApiError:
    """Return an error of the chat with the field's name in a body of ``/v1/responses``."""
    told = error.body
    ours = NAMES.get(told.param or "")
    if told.param is None or ours is None:
        return error
    message = re.sub(rf"\b{told.param}\b", ours, told.message)
    return ApiError(error.status, message, kind=told.type, param=ours, code=told.code, headers=error.headers)


def _messages(body: ResponsesBody) -> list[Message]:
    messages = [] if body.instructions is None else [Message(role="system", content=body.instructions)]
    if isinstance(body.input, str):
        return [*messages, Message(role="user", content=body.input)]
    turns: list[dict[str, Any]] = []
    for item in body.input:
        match item:
            case InputMessage(role="assistant"):
                _assistant(turns, unlike=("content", "tool_calls"))["content"] = _text(item.content)
            case InputMessage():
                turns.append({"role": item.role, "content": _text(item.content)})
            case InputCallOutput():
                turns.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
            case InputCall():
                _assistant(turns).setdefault("tool_calls", []).append(_call(item))
            case InputReasoning():
                reasoning = "".join(part.text for part in item.content or ())
                _assistant(turns, unlike=("content", "tool_calls"))["reasoning_content"] = reasoning
    said = [turn for turn in turns if "content" in turn or "tool_calls" in turn]  # reasoning may have led to nothing
    return messages + [Message(**turn) for turn in said]


def _assistant(turns: list[dict[str, Any]], *, unlike: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the assistant's message that goes on, or begin one: ``unlike`` are fields that it must not have yet."""
    last = turns[-1] if turns else {}
    if last.get("role") != "assistant" or any(field in last for field in unlike):
        turns.append({"role": "assistant"})
    return turns[-1]


def _text(content: str | list[ContentPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _call(item: InputCall) -> dict[str, Any]:
    return {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}


def _response_format(text: TextConfig | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    form = text.format
    schema = JsonSchemaFormat.model_construct(name=form.name, schema_=form.schema_)
    return ResponseFormat(type=form.type, json_schema=schema if form.type == "json_schema" else None)


def _tool(tool: FunctionTool) -> Tool:
    function = tool.model_dump(exclude={"type"}, exclude_unset=True)
    return Tool(type="function", function=Function.model_construct(**function))


def _tool_choice(choice: FunctionChoice) -> ToolChoice:
    return ToolChoice(type="function", function=NamedFunction(name=choice.name))
