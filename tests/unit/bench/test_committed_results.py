"""The committed result files have the form that they are written in."""

from pathlib import Path

import msgspec
import pytest

from legato.bench.closed_loop import ThroughputRow
from legato.bench.drafter import DrafterRow
from legato.bench.latency import LatencyRow
from legato.bench.serving.measure import ServingRow
from legato.bench.speculation import SpeculationRow
from legato.bench.startup import GraphMemoryRow, StartupRow
from legato.results.rows_file import read_rows_file

FILES = sorted((Path(__file__).parents[3] / "benchmarks" / "results").glob("*.json"))
KINDS = {
    "speed_ups": LatencyRow,
    "shares": ThroughputRow,
    "phases": StartupRow,
    "gib": GraphMemoryRow,
    "tokens_counted_by": ServingRow,
    "text_acceptance_length": SpeculationRow,
    "same_as_plain": DrafterRow,
}
"""A field that only rows of one kind have -> the kind."""


@pytest.mark.parametrize("path", [path for path in FILES if "latency" in path.name], ids=lambda path: path.name)
def test_a_latency_file_has_rows_of_latency(path: Path) -> None:
    rows = read_rows_file(path).rows
    assert rows
    assert [msgspec.convert(row, LatencyRow).case for row in rows] == [row["case"] for row in rows]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_row_of_a_known_kind_has_its_fields_and_no_others(path: Path) -> None:
    rows = msgspec.json.decode(path.read_bytes())["rows"]
    for row in rows:
        for kind in (KINDS[field] for field in row.keys() & KINDS.keys()):
            converted = msgspec.json.decode(msgspec.json.encode(msgspec.convert(row, kind)))
            # What a field that came later defaults to, an older file leaves out.
            assert {name: value for name, value in converted.items() if name in row} == row
