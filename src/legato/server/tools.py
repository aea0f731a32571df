"""Tools that a chat declares, and whether one of them must be called. Owns the checks; knows no way to write a call.

``none`` leaves the tools out of the prompt. ``required`` and a named tool begin the call on the model's behalf, and
guide what follows: arguments that the tool's schema accepts, behind the name of a declared tool where it is still to be
chosen; without white space, in which a model may lose itself.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from legato.flow.guide import Guide
from legato.server.errors import ApiError
from legato.server.parsers.registry import MessageStyle
from legato.server.requests import ChatBody, Tool, ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What one chat may call."""

    declared: tuple[dict[str, Any], ...] = ()
    """As the chat template takes them; empty: no tools."""
    names: frozenset[str] = frozenset()
    begun: str = ""
    """The start of a call that the answer must continue."""
    guide: Guide | None = None
    """The form of what follows; None: the model may call or not."""
    parallel: bool = True
    """False: only the first call of an answer counts."""


def tool_use(body: ChatBody, style: MessageStyle) -> ToolUse:
    """Return the tools of ``body``; raises ApiError or RequestError for what this model or these tools cannot give."""
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
    use = ToolUse(
        declared=tuple(tool.model_dump(exclude_unset=True) for tool in tools),
        names=frozenset(names),
        parallel=body.parallel_tool_calls is not False,
    )
    if choice == "auto":
        return use
    name = _chosen(choice, names)
    return replace(use, begun=style.calls.begun(name), guide=_guide(tools, name, style.calls.arguments))


def _guide(tools: list[Tool], name: str | None, arguments: str) -> Guide:
    """Return the form of the arguments of ``name``, or of a whole call of one of ``tools``."""
    schemas = {tool.function.name: tool.function.parameters or {"type": "object"} for tool in tools}
    if name is not None:
        return Guide.json_schema(schemas[name], compact=True, param="tools")
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": each}, arguments: schema},
            "required": ["name", arguments],
            "additionalProperties": False,
        }
        for each, schema in schemas.items()
    ]
    return Guide.json_schema({"anyOf": calls}, compact=True, param="tools")


def _chosen(choice: Literal["required"] | ToolChoice | str, names: list[str]) -> str | None:
    """Return the tool that must be called; None: any of several."""
    if not isinstance(choice, ToolChoice):
        return names[0] if len(names) == 1 else None
    if choice.function.name not in names:
        raise ApiError(400, f"tool_choice: there is no tool {choice.function.name!r}", param="tool_choice")
    return choice.function.name
