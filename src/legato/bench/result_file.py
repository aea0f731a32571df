"""The file that a measurement of speed leaves. Owns its rows; ``msgspec`` checks them both ways."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from legato.bench.latency import LatencyRow
from legato.results.result_file import ResultHeading


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult(ResultHeading):
    """One run of ``legato bench latency``."""

    rows: tuple[LatencyRow, ...]


def read_result(path: Path) -> LatencyResult:
    """Read a result file. Raises msgspec.ValidationError, naming the field, where it does not have the form."""
    return msgspec.json.decode(path.read_bytes(), type=LatencyResult)
