"""Tools that a chat declares, and whether one of them must be called. Owns the checks; knows no way to write a call.

``none`` leaves the tools out of the prompt. ``required`` and a named tool begin the call on the model's behalf, so that
the answer can be nothing else; what follows is the model's own.
"""

from dataclasses import dataclass
from typing import Any, Literal

from legato.server.errors import ApiError
from legato.server.parsers.registry import MessageStyle
from legato.server.requests import ChatBody, ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What one chat may call."""

    declared: tuple[dict[str, Any], ...] = ()
    """As the chat template takes them; empty: no tools."""
    names: frozenset[str] = frozenset()
    begun: str = ""
    """The start of a call that the answer must continue."""
    parallel: bool = True
    """False: only the first call of an answer counts."""


def tool_use(body: ChatBody, style: MessageStyle) -> ToolUse:
    """Return the tools of ``body``; raises ApiError for what this model or these tools cannot give."""
    tools, choice = body.tools or [], body.tool_choice or ("auto" if body.tools else "none")
    if not tools and choice not in ("none", "auto"):
        raise ApiError(400, "tool_choice: there are no tools to choose from", param="tool_choice")
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ApiError(400, "tools: two tools have the same name", param="tools")
    if not tools or choice == "none":
        return ToolUse()
    if style.calls is None:
        message = (
            "tools: this server knows no way in which the model writes tool calls; --tool-call-parser hermes or llama3 "
            "names one"
        )
        raise ApiError(400, message, param="tools", code="unsupported_value")
    return ToolUse(
        declared=tuple(tool.model_dump(exclude_unset=True) for tool in tools),
        names=frozenset(names),
        begun="" if choice == "auto" else style.calls.begun(_chosen(choice, names)),
        parallel=body.parallel_tool_calls is not False,
    )


def _chosen(choice: Literal["required"] | ToolChoice | str, names: list[str]) -> str | None:
    """Return the tool that must be called; None: any of several."""
    if not isinstance(choice, ToolChoice):
        return names[0] if len(names) == 1 else None
    if choice.function.name not in names:
        raise ApiError(400, f"tool_choice: there is no tool {choice.function.name!r}", param="tool_choice")
    return choice.function.name
