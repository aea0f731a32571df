"""Dataclass fields -> command-line options. Owns the translation; knows no option by name.

A command takes a whole dataclass as one parameter; :func:`takes_options` spreads it into one option per field, with the
help, choices, panel and aliases that the field's metadata declares (``legato.config.options.option``).
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from legato.errors import ConfigError

_METAVARS = {int: "N", float: "X"}


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Spread every parameter of ``command`` that is a dataclass into one option per field.

    The result has a signature that typer reads, and builds the dataclasses before it calls ``command``.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}

    @functools.wraps(command)
    def spread(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: _as_field(values.pop(field.name)) for field in fields(kind)})
        command(**values)

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in groups
    ]
    spread_options = [parameter for kind in groups.values() for parameter in option_parameters(kind)]
    spread.__signature__ = inspect.Signature([*own, *spread_options])  # type: ignore[attr-defined]
    return spread


def option_parameters(kind: type) -> list[inspect.Parameter]:
    """Return one keyword parameter, with typer's annotation, for every field of the dataclass ``kind``."""
    hints = get_type_hints(kind)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_typed_default(field),
            annotation=_annotation(field, hints[field.name]),
        )
        for field in fields(kind)
    ]


def flag(name: str) -> str:
    """Return how the field ``name`` is typed: ``max_model_len`` is ``--max-model-len``."""
    return f"--{name.replace('_', '-')}"


def comma_separated_integers(text: str) -> tuple[int, ...]:
    """Parse ``1,2,4``. Raises ConfigError for anything but integers between commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        details = {"found": repr(text), "options": "integers between commas, such as 1,2,4,8"}
        raise ConfigError("a list of integers was expected", details) from None


def _annotation(field: "Field[Any]", hint: Any) -> Any:
    """Return ``Annotated[type, typer.Option(...)]`` for one field."""
    value_type, optional = _without_none(hint)
    metadata = field.metadata
    declarations = [flag(field.name), *metadata.get("aliases", ())]
    extra: dict[str, Any] = {}
    if value_type is bool:
        extra["metavar"] = ""  # it takes no value
        declarations = [f"{declarations[0]}/--no-{declarations[0].removeprefix('--')}", *declarations[1:]]
    elif choices := metadata.get("choices"):
        if get_origin(value_type) is tuple:
            value_type = list[StrEnum("Choice", list(zip(choices, choices, strict=True)))]  # type: ignore[misc]
        else:
            value_type = Literal.__getitem__(choices)
        extra["metavar"], extra["help"] = "NAME", f"{metadata['help']} One of {', '.join(choices)}."
    elif get_origin(value_type) is tuple and get_args(value_type)[0] is int:
        value_type, extra["parser"] = str, comma_separated_integers
    elif get_origin(value_type) is tuple:
        value_type = list[str]  # repeated on the command line: a string may hold a comma
    extra.setdefault("metavar", metadata.get("metavar") or _METAVARS.get(value_type, "TEXT"))
    extra.setdefault("help", metadata.get("help"))
    default = _typed_default(field)
    info = typer.Option(
        *declarations,
        rich_help_panel=metadata.get("panel"),
        show_default=default is not None and default is not False and default != [],
        **extra,
    )
    return Annotated[value_type | None if optional else value_type, info]


def _typed_default(field: "Field[Any]") -> Any:
    """Return the field's default as it would be typed."""
    default = field.default if field.default is not MISSING else inspect.Parameter.empty
    if isinstance(default, tuple):
        return ",".join(map(str, default)) if default and isinstance(default[0], int) else list(default)
    return default


def _as_field(value: Any) -> Any:
    return tuple(map(str, value)) if isinstance(value, list) else value


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into (X, True); any other type is (type, False)."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    [inner] = [member for member in get_args(hint) if member is not NoneType]
    return inner, True
