"""The rows of all result files, as a page asks for them. Owns which row stands for a case: the latest file's."""

import json
import shlex
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FOLDER = "benchmarks/results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One row, with the file and the device that it comes from."""

    file: str
    device: str
    row: Row

    def __getitem__(self, field: str) -> Any:
        return self.row[field]

    def get(self, field: str) -> Any:
        """Return a field that the row may lack."""
        return self.row.get(field)

    @property
    def link(self) -> str:
        """Where the row stands, as a page in docs/ links to it."""
        return file_link(self.file, self.file.removesuffix(".json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One file, as far as a page tells of it."""

    name: str
    device: str
    commit: str
    command: str
    rows: tuple[Row, ...]


def result_files(root: Path) -> list[ResultFile]:
    """Return all result files in the order of their names, which begin with a date."""
    return [_read(path) for path in sorted((root / FOLDER).glob("*.json"))]


def found_rows(files: Iterable[ResultFile]) -> list[Found]:
    """Return the rows of all files, in order."""
    return [Found(file=file.name, device=file.device, row=row) for file in files for row in file.rows]


def file_link(name: str, text: str) -> str:
    """Return a link to a result file from a page in docs/."""
    return f"[{text}](../{FOLDER}/{name})"


def _read(path: Path) -> ResultFile:
    """Read a file; a script of benchmarks/ may put its command, in parts, into the environment."""
    content = json.loads(path.read_text())
    environment = content["environment"]
    command = content.get("command") or environment.get("command") or "-"
    return ResultFile(
        name=path.name,
        device=environment["device"],
        commit=content.get("commit", "-"),
        command=command if isinstance(command, str) else shlex.join(command),
        rows=tuple(content.get("rows", ())),
    )


def latest(rows: Iterable[Found], key: Callable[[Found], Hashable]) -> list[Found]:
    """Return one row per key, that of the latest file, keys in the order in which they first came."""
    return list({key(row): row for row in rows}.values())


def _beside(own: Found, others: Sequence[Found], key: Callable[[Found], Hashable]) -> Found | None:
    """Return the other engine's row of the same key, from the same file or else the latest one; None: there is none."""
    same = [other for other in others if key(other) == key(own)]
    return next((other for other in same if other.file == own.file), same[-1] if same else None)


def pairs(rows: Sequence[Found], fields: Sequence[str]) -> list[tuple[Found, Found | None]]:
    """Return Legato's latest rows, each with vLLM's row of the same case."""
    key = key_of(fields)
    peers = [row for row in rows if row["engine"] == "vllm"]
    return [(own, _beside(own, peers, key)) for own in latest((r for r in rows if r["engine"] == "legato"), key)]


def key_of(fields: Sequence[str]) -> Callable[[Found], Hashable]:
    """Return what rows are the same case by: these fields."""
    return lambda row: tuple(row.get(field) for field in fields)


def held_beside(
    own: Found, other: Found | None, field: str, ratio: Callable[[float, float], float], form: str
) -> tuple[str, str]:
    """Return two cells: the other's figure with its version, and the ratio of the two."""
    if other is None:
        return ("-", "-")
    return (f"{form.format(other[field])} ({other['version']})", f"{ratio(own[field], other[field]):.2f}")


def links(own: Found, other: Found | None) -> str:
    """Return the links to the files of two rows."""
    return ", ".join(dict.fromkeys(row.link for row in (own, other) if row is not None))


def by_device(rows: Iterable[Found]) -> dict[str, list[Found]]:
    """Return the rows of each device, in order."""
    devices: dict[str, list[Found]] = {}
    for row in rows:
        devices.setdefault(row.device, []).append(row)
    return devices
