"""How an evaluation looks on a terminal: its progress, its table, and where answers differ."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from legato.cli import tables
from legato.cli.bench_progress import measuring

if TYPE_CHECKING:
    from legato.eval.answers import Progress
    from legato.eval.row import EvalRow

_SHOWN_DIFFERENCES = 10
"""For each engine; the JSON has all."""


@contextmanager
def answering(console: Console, num_questions: int, name: str) -> "Iterator[Progress]":
    """Show a bar of questions for one engine, with its tokens per second."""
    with measuring(console, name, num_questions) as report:
        started = time.perf_counter()
        yield lambda done, num_tokens: report(done, f"{num_tokens / (time.perf_counter() - started):.0f} tokens/s")


def report_tables(rows: "Sequence[EvalRow]") -> list[Table]:
    """Return accuracy and speed, and how the answers compare where they do."""
    return [_accuracy(rows), _speed(rows), _comparison([row for row in rows if row.identical is not None])]


def show_differences(rows: "Sequence[EvalRow]", console: Console) -> None:
    """Print where answers differ, and what that comes to; nothing where none were compared."""
    for line in (line for row in rows for line in _differences(row)):
        console.print(Text(line), soft_wrap=True)
    if all(row.identical is None for row in rows):
        return
    if any(row.num_other for row in rows):
        console.print("answers differ, and not by near-ties", style="bold red")
    else:
        near = any(row.differences for row in rows)
        console.print("same answers, but for near-ties" if near else "same answers", style="bold green")


def _accuracy(rows: "Sequence[EvalRow]") -> Table:
    numeric = ("strict", "flexible", "no ####", "no number")
    cells = [
        (
            *_engine(row),
            f"{row.accuracy_strict:.1%} {_interval(row.interval_strict)}",
            f"{row.accuracy_flexible:.1%} {_interval(row.interval_flexible)}",
            row.num_without_mark,
            row.num_invalid,
        )
        for row in rows
    ]
    title = f"Accuracy (95 %), {rows[0].case}, {rows[0].num_questions} questions, {rows[0].model}"
    return tables.table(title, ("engine", "policy", *numeric), cells, numeric=numeric)


def _speed(rows: "Sequence[EvalRow]") -> Table:
    numeric = ("seconds", "questions/s", "latency s", "output tokens/s", "ms/token")
    cells = [
        (
            *_engine(row),
            f"{row.seconds:.1f}",
            f"{row.questions_per_s:.2f}",
            f"{row.mean_latency_s:.2f}",
            f"{row.output_tok_per_s:.1f}",
            None if row.tpot_ms is None else f"{row.tpot_ms:.2f}",
        )
        for row in rows
    ]
    return tables.table("Speed", ("engine", "policy", *numeric), cells, numeric=numeric)


def _comparison(rows: "Sequence[EvalRow]") -> Table:
    numeric = ("identical", "near ties", "other")
    cells = [(*_engine(row), row.compared_with, row.identical, row.num_near_ties, row.num_other) for row in rows]
    return tables.table("Same tokens", ("engine", "policy", "compared with", *numeric), cells, numeric=numeric)


def _engine(row: "EvalRow") -> tuple[str, str | None]:
    return row.backend or row.engine, row.policy


def _interval(bounds: tuple[float, float]) -> str:
    return f"({bounds[0] * 100:.0f}-{bounds[1] * 100:.0f})"


def _differences(row: "EvalRow") -> Iterator[str]:
    for one in row.differences[:_SHOWN_DIFFERENCES]:
        gap = "not both among the best" if one.gap is None else f"log-probabilities {one.gap:.3g} apart"
        kind = "near-tie" if one.near_tie else "other"
        yield (
            f"{row.backend} {row.policy} against {row.compared_with}: question {one.question}, token {one.position}: "
            f"{one.given} in place of {one.expected}, {gap}: {kind}"
        )
    if len(row.differences) > _SHOWN_DIFFERENCES:
        yield f"{row.backend} {row.policy}: {len(row.differences) - _SHOWN_DIFFERENCES} more differences"
