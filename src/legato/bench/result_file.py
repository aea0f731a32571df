"""The file that a measurement leaves. Owns its form; ``msgspec`` checks it both ways."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from legato.bench.latency import LatencyRow
from legato.bench.place import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    """One run of ``legato bench latency``."""

    environment: Environment
    command: str
    commit: str
    model: str
    dtype: str
    rows: tuple[LatencyRow, ...]


def write_result(result: LatencyResult, path: Path) -> None:
    """Write the result as indented JSON; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(path: Path) -> LatencyResult:
    """Read a result file. Raises msgspec.ValidationError, naming the field, where it does not have the form."""
    return msgspec.json.decode(path.read_bytes(), type=LatencyResult)
