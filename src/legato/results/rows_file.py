"""A result file of rows, to which several commands may add. Owns its form; the rows are the measurements' own.

The form is ``{"environment", "command", "commit", "rows"}``; every row names what it measured, so that rows of several
engines and models stand in one file.
"""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from legato.errors import ConfigError
from legato.results.place import Environment

Row = dict[str, Any]
"""One row as JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFile:
    """What one file holds."""

    environment: Environment
    command: str
    """A line of the shell, ``&&`` between commands."""
    commit: str
    rows: tuple[Row, ...]


def read_rows_file(path: Path) -> RowsFile:
    """Read a file of rows. Raises msgspec.ValidationError, naming the field, where it does not have the form."""
    return msgspec.json.decode(path.read_bytes(), type=RowsFile)


def write_rows(
    path: Path, rows: Sequence[object], *, environment: Environment, command: str, commit: str, append: bool = False
) -> None:
    """Write rows, dataclasses or JSON values; ``append`` keeps those that the file has already.

    Raises ConfigError for rows that were measured elsewhere than those in the file.
    """
    built = tuple(msgspec.to_builtins(row) for row in rows)
    file = RowsFile(environment=environment, command=command, commit=commit, rows=built)
    if append and path.exists():
        file = _joined(read_rows_file(path), file, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def portable_command(arguments: Sequence[str], *, program: Sequence[str] = ("legato",)) -> str:
    """Return ``PROGRAM ARGUMENTS`` for another machine: of a path that only this one has, the last part stays."""
    return shlex.join([*program, *map(_portable, arguments)])


def model_name(model: str) -> str:
    """Return how a row names a model: a folder's or a file's own name, or what the user typed."""
    return Path(model).name if Path(model).exists() else model


def _portable(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    is_elsewhere = value.startswith(("/", ".", "~")) or (os.sep in value and Path(value).is_dir())
    return f"{option}{equals}{Path(value).name}" if is_elsewhere and os.sep in value else argument


def _place(file: RowsFile) -> tuple[str, str, str]:
    """Return what rows of one file have in common; how many threads torch has is each command's own."""
    return (file.environment.processor, file.environment.device, file.commit)


def _joined(old: RowsFile, new: RowsFile, path: Path) -> RowsFile:
    """Return both files as one."""
    if _place(old) != _place(new):
        raise ConfigError(
            "the file has rows of another machine or of another commit",
            {
                "requested": f"--append to {path}",
                "found": f"{old.environment.device}, commit {old.commit}",
                "limit": f"{new.environment.device}, commit {new.commit}",
                "options": "another --output FILE",
            },
        )
    return RowsFile(
        environment=replace(new.environment, versions=old.environment.versions | new.environment.versions),
        command=f"{old.command} && {new.command}",
        commit=new.commit,
        rows=old.rows + new.rows,
    )
