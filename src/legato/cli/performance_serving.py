"""Figures of servers: load over HTTP beside vLLM's, and what the server adds to its engine. Owns their columns."""

from collections.abc import Sequence

from legato.bench.serving.summary import Measure, figure
from legato.cli.markdown import markdown_table
from legato.cli.performance_rows import Found, latest

Runs = list[Found]
"""The repetitions of one load, of one file."""


def serving_section(rows: Sequence[Found]) -> str:
    """Return medians of latencies and throughput, a line per load, beside vLLM's server under the same load."""
    own, peers = (_loads(rows, engine) for engine in ("legato", "vllm"))
    lines = []
    for (model, case), runs in own.items():
        other = peers.get((model, case))
        lines.append(
            (
                case,
                model,
                f"{sum(run['completed'] for run in runs)}, {sum(run['failed'] for run in runs)}",
                *_beside(runs, other, "ttft_ms.median", "{:.1f}"),
                *_beside(runs, other, "tpot_ms.median", "{:.2f}"),
                *_beside(runs, other, "output_tok_per_s", "{:,.0f}"),
                _cell(runs, "fairness.ratio", "{:.2f}"),
                ", ".join(dict.fromkeys(run.link for run in (*runs, *(other or ())))),
            )
        )
    columns = (
        *("load", "model", "requests, failed"),
        *("first token ms", "vLLM's", "ms/token", "vLLM's", "tokens/s out", "vLLM's"),
        *("fastest request over slowest", "files"),
    )
    return markdown_table(columns, lines) if lines else ""


def overhead_section(rows: Sequence[Found]) -> str:
    """Return what clients see over HTTP beside the engine in one process, a line per closed loop."""
    measured = latest((row for row in rows if row.get("tpot_ratio")), lambda row: (row["model"], row["case"]))
    lines = [
        (
            str(row["concurrency"]),
            row["model"],
            f"{row['in_process_tpot_ms']:.3f}",
            f"{row['http_tpot_ms']:.3f}",
            f"{row['tpot_ratio']:.3f}",
            f"{row['in_process_tok_per_s']:,.0f}",
            f"{row['http_tok_per_s']:,.0f}",
            f"{row['throughput_ratio']:.3f}",
            row.link,
        )
        for row in measured
    ]
    columns = ("streams", "model", "ms/token", "over HTTP", "ratio", "tokens/s", "over HTTP", "ratio", "file")
    return markdown_table(columns, lines) if lines else ""


def _loads(rows: Sequence[Found], engine: str) -> dict[tuple[str, str], Runs]:
    """Return the runs of each (model, load), of the latest file that has it."""
    loads: dict[tuple[str, str], Runs] = {}
    for row in rows:
        if not row.get("tokens_counted_by") or row.get("engine") != engine:
            continue
        runs = loads.setdefault((row["model"], row["case"]), [])
        if runs and runs[0].file != row.file:
            runs.clear()
        runs.append(row)
    return loads


def _beside(own: Runs, other: Runs | None, path: str, form: str) -> tuple[str, str]:
    return _cell(own, path, form), "-" if other is None else _cell(other, path, form)


def _cell(runs: Runs, path: str, form: str) -> str:
    """Return the median of a figure over the runs that have it."""
    found = figure([run.row for run in runs], Measure(label="", path=path))
    return "-" if found is None else form.format(found.value)
