"""Messages as the chat template takes them."""

import json
from typing import Any

from legato.engine.async_engine import Conversation
from legato.server.errors import ApiError
from legato.server.requests import Message
from legato.server.tools import ToolUse

RESERVED = frozenset({"self", "messages", "add_generation_prompt", "tools"})
"""Names that a template's variables cannot have."""


def conversation(
    messages: list[Message],
    *,
    add_generation_prompt: bool | None,
    template_variables: dict[str, Any] | None,
    tools: ToolUse | None = None,
) -> Conversation:
    """Return the conversation that a body asks to continue; text parts are joined by line ends. Raises ApiError."""
    variables = template_variables or {}
    if taken := RESERVED.intersection(variables):
        message = f"chat_template_kwargs: {min(taken)!r} is set by the server"
        raise ApiError(400, message, param="chat_template_kwargs")
    return Conversation(
        messages=tuple(_plain(message) for message in messages),
        add_generation_prompt=add_generation_prompt is not False,
        template_variables=variables | ({"tools": tools.declared} if tools is not None and tools.declared else {}),
        answer_start="" if tools is None else tools.begun,
    )


def _plain(message: Message) -> dict[str, Any]:
    content, extra = message.content, message.model_extra or {}
    calls = extra.get("tool_calls")
    if content is None and not (message.role == "assistant" and calls):
        raise ApiError(400, "messages: only an assistant's message that calls tools may lack content", param="messages")
    text = content if isinstance(content, str) else "\n".join(part.text for part in content or ())
    if isinstance(calls, list):
        extra = extra | {"tool_calls": [_call(call) for call in calls]}
    return extra | {"role": message.role, "content": text}


def _call(call: Any) -> Any:
    """Return a call with its arguments as an object, as templates expect them; OpenAI's clients send them as JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError) as error:
        message = f"messages: the arguments of a tool call are no JSON: {error}"
        raise ApiError(400, message, param="messages") from None
    return call | {"function": function | {"arguments": arguments}}
