"""The file that a measurement leaves. Owns its heading and how it is written; the rows are the measurement's own."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from legato.results.place import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHeading:
    """What every result file begins with; a measurement adds its ``rows``."""

    environment: Environment
    command: str
    commit: str
    model: str
    dtype: str


def write_result(result: ResultHeading, path: Path) -> None:
    """Write the result as indented JSON; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
