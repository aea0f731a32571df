"""Messages as the chat template takes them."""

from typing import Any

from legato.engine.async_engine import Conversation
from legato.server.errors import ApiError
from legato.server.requests import Message

RESERVED = frozenset({"self", "messages", "add_generation_prompt"})
"""Names that a template's variables cannot have."""


def conversation(
    messages: list[Message], *, add_generation_prompt: bool | None, template_variables: dict[str, Any] | None
) -> Conversation:
    """Return the conversation that a body asks to continue; text parts are joined by line ends. Raises ApiError."""
    variables = template_variables or {}
    if taken := RESERVED.intersection(variables):
        message = f"chat_template_kwargs: {min(taken)!r} is set by the server"
        raise ApiError(400, message, param="chat_template_kwargs")
    return Conversation(
        messages=tuple(_plain(message) for message in messages),
        add_generation_prompt=add_generation_prompt is not False,
        template_variables=variables,
    )


def _plain(message: Message) -> dict[str, Any]:
    content = message.content
    text = content if isinstance(content, str) else "\n".join(part.text for part in content)
    return (message.model_extra or {}) | {"role": message.role, "content": text}
