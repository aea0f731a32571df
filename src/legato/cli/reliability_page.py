"""docs/reliability.md's figures, made from the result files of ``benchmarks/soak.py`` and ``benchmarks/faults.py``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.cli.markdown import markdown_table
from legato.results.rows_file import RowsFile, read_rows_file

FOLDER = "benchmarks/results/reliability"
POINTS = 7
"""Moments at which memory over time is told."""
Row = dict[str, Any]
_OUTCOMES = {
    "right answer": "right answers",
    "left, right so far": "clients that left, right so far",
    "refused for want of room": "refused for want of room (503)",
    "bad request, refused as it must be": "bad requests, refused as they must be (4xx)",
    "wrong answer": "wrong answers",
    "stuck": "stuck",
    "failed": "failed",
}
"""How the soak names an outcome -> how the page does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One row, with the file that it comes from."""

    name: str
    file: RowsFile
    row: Row


def reliability_page(root: Path) -> str:
    """Return what was seen in the latest soak of each kind, and of each planted fault."""
    files = [(path.name, read_rows_file(path)) for path in sorted((root / FOLDER).glob("*.json"))]
    rows = [_Found(name=name, file=file, row=row) for name, file in files for row in file.rows]
    soaks = {_without_date(found.name): found for found in rows if found.row["case"] == "soak"}
    faults = {found.row["name"]: found for found in rows if found.row["case"] == "fault"}
    parts = [*map(_soak, soaks.values()), _faults(list(faults.values())), _files(files)]
    return "\n\n".join(parts)


def _soak(found: _Found) -> str:
    row = found.row
    sections = [
        f"## Soak: {row['model']}, {row['minutes']:g} minutes",
        f"`{found.file.command.partition(' --save ')[0]}`{_served_with(found.file.command)}",
        _verdict(row),
        markdown_table(("outcome", "requests"), _outcomes(row)),
        markdown_table(("", *(f"{sample['seconds'] / 60:.0f} min" for sample in _moments(row))), _over_time(row)),
        markdown_table(("kind of request", *_OUTCOMES.values()), _by_kind(row)),
    ]
    return "\n\n".join(sections)


def _served_with(command: str) -> str:
    """Return with what options the server was started, in words."""
    options = command.partition(" -- ")[2]
    return f", the server with `{options}`" if options else ""


def _verdict(row: Row) -> str:
    started, ended = row["started"], row["ended"]
    blocks = (
        f"{started['kv_used_share']:.0%} of the KV blocks were in use at the start and {ended['kv_used_share']:.0%}"
    )
    violations = "Nothing was violated." if not row["violations"] else "Violated: " + "; ".join(row["violations"])
    return (
        f"{row['requests']:,} requests, {row['questions']} different questions, "
        f"{ended['generation_tokens'] - started['generation_tokens']:,.0f} tokens. {blocks} at the end; "
        f"the server had {started['server_files']:g} open files and {ended['server_files']:g}. {violations}"
    )


def _outcomes(row: Row) -> list[tuple[str, str]]:
    counts = Counter[str]()
    for entry in row["outcomes"]:
        counts[entry["outcome"]] += entry["count"]
    return [(told, f"{counts[name]:,}") for name, told in _OUTCOMES.items()]


def _by_kind(row: Row) -> list[tuple[str, ...]]:
    counts = {(entry["kind"], entry["outcome"]): entry["count"] for entry in row["outcomes"]}
    kinds = dict.fromkeys(kind for kind, _ in counts)
    return [(kind, *(f"{counts.get((kind, name), 0):,}" for name in _OUTCOMES)) for kind in kinds]


def _moments(row: Row) -> list[Row]:
    """Return the samples at equal distances, the first and the last among them."""
    samples = row["samples"]
    last = len(samples) - 1
    return [samples[round(last * number / (POINTS - 1))] for number in range(POINTS)]


def _over_time(row: Row) -> list[tuple[str, ...]]:
    lines = {
        "server, MiB": ("server_mib", "{:.0f}"),
        "engine, MiB": ("engine_mib", "{:.0f}"),
        "KV blocks in use": ("kv_used_share", "{:.1%}"),
        "running": ("running", "{:.0f}"),
    }
    return [(name, *(form.format(sample[field]) for sample in _moments(row))) for name, (field, form) in lines.items()]


def _faults(faults: Sequence[_Found]) -> str:
    return "\n\n".join(["## Planted faults", *(_fault(found.row) for found in faults)])


def _fault(row: Row) -> str:
    """Return what was done, what was seen, and whether everything held that must hold."""
    figures = [f"{name.replace('_', ' ')} {value:g}" for name, value in row["figures"].items()]
    held = "All of it held." if not row["failed"] else f"**Did not hold: {'; '.join(row['failed'])}.**"
    lines = [
        f"- Clients: {'; '.join(row['saw'])}.",
        f"- Afterwards: {'; '.join(row['recovered'])}.",
        *([f"- Figures: {', '.join(figures)}."] if figures else ()),
        f"- {held}",
    ]
    return "\n".join([f"### {row['name']}", "", row["done"], "", *lines])


def _files(files: Sequence[tuple[str, RowsFile]]) -> str:
    lines = [
        (f"[{name}](../{FOLDER}/{name})", file.environment.processor, file.commit[:7], f"`{file.command}`")
        for name, file in files
    ]
    return "## Files\n\n" + markdown_table(("file", "processor", "commit", "command"), lines)


def _without_date(name: str) -> str:
    return name.split("-", 3)[-1]
