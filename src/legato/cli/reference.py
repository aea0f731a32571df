"""The command tree -> Markdown. Owns the page's form; every word on it comes from the commands' own help."""

from typing import Any

import typer

_HELP = "--help"


def command_reference(app: typer.Typer) -> str:
    """Return one section per command with a table of its parameters, grouped as in ``--help``."""
    return "\n\n".join(_sections("legato", typer.main.get_command(app)))


def _sections(path: str, command: Any) -> list[str]:
    """Return the sections of a command and of everything below it."""
    children = getattr(command, "commands", {})
    own = [f"## {path}", _plain(command.help)] if not children else []
    tables = [_panel(title, params) for title, params in _panels(command).items()] if not children else []
    below = [section for name, child in children.items() for section in _sections(f"{path} {name}", child)]
    return ["\n\n".join([*own, *tables]), *below] if own else below


def _panels(command: Any) -> dict[str, list[Any]]:
    panels: dict[str, list[Any]] = {}
    for param in command.params:
        if _HELP not in param.opts and not getattr(param, "hidden", False):
            panels.setdefault(getattr(param, "rich_help_panel", None) or "General", []).append(param)
    return panels


def _panel(title: str, params: list[Any]) -> str:
    rows = [f"| {_names(param)} | {_default(param)} | {_escaped(param.help or '')} |" for param in params]
    return "\n".join([f"| {title} | default | |", "|---|---|---|", *rows])


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.name.upper()}`"
    return " ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])


def _default(param: Any) -> str:
    if param.default in (None, (), []):
        return ""
    if isinstance(param.default, bool):
        return "on" if param.default else "off"
    return f"`{param.default}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _plain(text: str | None) -> str:
    return (text or "").replace("\b", "").strip()
