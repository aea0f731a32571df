"""Piecewise against full-and-piecewise graphs, per attention backend. Owns which rows compare the two."""

from collections.abc import Sequence

from legato.cli.markdown import markdown_table
from legato.cli.performance_rows import Found
from legato.graphs.modes import GraphPolicy

_POLICIES = (str(GraphPolicy.PIECEWISE), str(GraphPolicy.FULL_AND_PIECEWISE))
_METRICS = (
    ("total_tok_per_s", "tokens/s", "{:,.0f}"),
    ("tpot_ms", "ms/token", "{:.3f}"),
    ("accuracy_strict", "accuracy", "{:.1%}"),
)


def backend_section(rows: Sequence[Found]) -> str:
    """Return throughput, time per token and accuracy, a line per backend and policy of those that have both."""
    compared = [
        row
        for row in rows
        if row.get("backend") and row.get("policy") in _POLICIES and not str(row.get("case")).startswith("modes")
    ]
    values: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in compared:
        cells = values.setdefault((row["model"], row["backend"], row["policy"]), {})
        cells |= _cells(row)
    both = {key[:2] for key in values if all((*key[:2], policy) in values for policy in _POLICIES)}
    shared = list(dict.fromkeys(label for cells in values.values() for label in cells))
    labels = [
        label for label in shared if any(all(label in values[(*pair, policy)] for policy in _POLICIES) for pair in both)
    ]
    lines = [
        (model, f"`{backend}`", f"`{policy}`", *(values[model, backend, policy].get(label, "-") for label in labels))
        for model, backend in sorted(both)
        for policy in _POLICIES
    ]
    return markdown_table(("model", "backend", "policy", *labels), lines) if lines and labels else ""


def is_comparison(rows: Sequence[Found], file: str) -> bool:
    """Return whether a file holds rows of both policies for the same backend and case."""
    pairs = {
        policy: {
            (row["model"], row["backend"], row["case"])
            for row in rows
            if row.file == file and row.get("policy") == policy
        }
        for policy in _POLICIES
    }
    return bool(pairs[_POLICIES[0]] & pairs[_POLICIES[1]])


def _cells(row: Found) -> dict[str, str]:
    """Return 'case metric' -> value for each metric of a row; a loop's latencies stand by their mean."""
    found = {}
    for field, label, form in _METRICS:
        value = row.get(field)
        if isinstance(value, dict):
            value = value["mean"]
        if value is not None:
            found[f"{row['case']} {label}"] = form.format(value)
    return found
