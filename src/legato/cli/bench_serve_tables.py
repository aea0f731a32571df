"""Rows of ``legato bench serve`` -> rich tables. Owns columns and their order; the measures are bench's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from legato.cli import tables

if TYPE_CHECKING:
    from legato.bench.serving.summary import Comparison, Figure, Measure
    from legato.results.rows_file import Row


def serving_table(rows: "Sequence[Row]") -> Table:
    """Return a line per measure and a column per load: the median of its runs, with their noise."""
    from legato.bench.serving.summary import MEASURES, by_case, figure

    cases = by_case(rows)
    lines = [(measure, [figure(runs, measure) for runs in cases.values()]) for measure in MEASURES]
    cells = [(measure.label, *(_cell(measure, one) for one in found)) for measure, found in lines if any(found)]
    return tables.table("Serving", ("", *cases), cells, numeric=cases)


def acceptance_table(rows: "Sequence[Row]") -> Table:
    """Return the share of drafts that stood by position, a line per load, of its last run."""
    from legato.bench.serving.summary import by_case

    told = {
        case: acceptance["per_position"]
        for case, runs in by_case(rows).items()
        if (acceptance := runs[-1]["server"]["acceptance"])
    }
    width = max(map(len, told.values()), default=0)
    columns = [str(position + 1) for position in range(width)]
    cells = [(case, *(f"{share:.1%}" for share in shares)) for case, shares in told.items()]
    return tables.table("Drafts accepted, by position", ("load", *columns), cells, numeric=columns)


def failures_table(rows: "Sequence[Row]") -> Table:
    """Return why requests failed."""
    cells = [
        (row["case"], row["repetition"] + 1, count, reason) for row in rows for reason, count in row["failures"].items()
    ]
    return tables.table("Failed requests", ("load", "run", "requests", "reason"), cells, numeric=("run", "requests"))


def comparison_tables(compared: "Mapping[str, Sequence[Comparison]]", first: str, second: str) -> list[Table]:
    """Return a table per load: both figures, the second over the first, and whether that is more than noise."""
    columns = ("", first, second, "ratio", "noise", "verdict")
    return [
        tables.table(
            case,
            columns,
            [
                (
                    one.measure.label,
                    _number(one.measure, one.first.value),
                    _number(one.measure, one.second.value),
                    None if one.ratio is None else f"{one.ratio:.3f}",
                    None if one.noise is None else f"±{one.noise:.1%}",
                    one.verdict,
                )
                for one in comparisons
            ],
            numeric=columns[1:5],
        )
        for case, comparisons in compared.items()
    ]


def _cell(measure: "Measure", found: "Figure | None") -> str | None:
    if found is None:
        return None
    noise = f" ±{found.noise:.1%}" if found.noise else ""
    return f"{_number(measure, found.value)}{noise}"


def _number(measure: "Measure", value: float) -> str:
    return f"{value:.1%}" if measure.is_share else f"{value:,.{measure.digits}f}"
