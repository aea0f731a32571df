"""Reports -> rich tables. Owns columns and their order; decides nothing about their content."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from legato.observability.stats import EngineStats


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Iterable[str] = ()
) -> Table:
    """Return a table; ``numeric`` names the columns that align right. None is shown as a dash."""
    numbers = set(numeric)
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        result.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))  # Text: brackets are no markup
    return result


def records_table(title: str, records: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of JSON-like records, one column per key that has a value in any of them."""
    columns = [
        key for key in (records[0] if records else ()) if any(record[key] not in (None, {}) for record in records)
    ]
    numeric = [key for key in columns if any(isinstance(record[key], (int, float)) for record in records)]
    return table(title, columns, ([_cell(record[key]) for key in columns] for record in records), numeric=numeric)


def steps_table(stats: EngineStats) -> Table:
    """Return which graphs were replayed and how often, and the steps that ran without one."""
    rows: list[tuple[object, object]] = [(key, count) for key, count in _most_first(stats.graph_replays)]
    rows += [(f"{step} (no graph)", count) for step, count in _most_first(stats.graph_steps) if step.endswith("eager")]
    rows += [
        (f"  why not full: {_without_stage(reason)}", count) for reason, count in _most_first(stats.graph_fallbacks)
    ]
    return table("Graphs replayed", ("graph", "steps"), rows, numeric=("steps",))


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _without_stage(name: str) -> str:
    """Return the reason of ``stage reason``."""
    return name.partition(" ")[2]


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items()) or None
    return value
