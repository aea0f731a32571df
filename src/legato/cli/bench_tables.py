"""Rows of measurements -> rich tables. Owns columns and their order; decides nothing about their content."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from legato.cli import tables

if TYPE_CHECKING:  # they import torch
    from legato.bench.closed_loop import Latencies, ThroughputRow
    from legato.bench.drafter import DrafterRow
    from legato.bench.latency import LatencyRow, Spread
    from legato.bench.speculation import SpeculationRow
    from legato.bench.startup import GraphMemoryRow, StartupRow


def latency_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return the medians, one line per engine and batch size."""
    columns = ("engine", "batch", "prefill ms", "ms/token", "host ms/step", "tokens/s")
    cells = [
        (
            row.name,
            row.batch_size,
            f"{row.prefill_ms:.1f}",
            f"{row.tpot_ms:.3f}",
            None if row.host_ms_per_step is None else f"{row.host_ms_per_step:.3f}",
            f"{row.output_tok_per_s:.1f}",
        )
        for row in rows
    ]
    return tables.table("Latency, medians", columns, cells, numeric=columns[1:])


def acceptance_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return what drafts brought, a line per engine that tells and batch size; no line where there were none."""
    columns = ("engine", "batch", "tokens/round", "ms/round", "accepted by position")
    cells = [
        (
            row.name,
            row.batch_size,
            f"{row.acceptance_length:.2f}",
            None if row.round_ms is None else f"{row.round_ms:.3f}",
            " ".join(f"{rate:.2f}" for rate in row.acceptance_rates),
        )
        for row in rows
        if row.acceptance_length is not None
    ]
    return tables.table("Drafts", columns, cells, numeric=columns[1:-1])


def drafter_table(rows: "Sequence[DrafterRow]") -> Table:
    """Return what a drafter brings on given prompts, a line per engine and number at once."""
    columns = ("engine", "at once", "tokens/round", "by position", "tokens/s", "plain", "faster", "same answers")
    cells = [
        (
            row.engine,
            row.batch_size,
            None if row.acceptance_length is None else f"{row.acceptance_length:.3f}",
            " ".join(f"{rate:.2f}" for rate in row.acceptance_rates),
            f"{row.output_tok_per_s:,.0f}",
            None if row.plain_tok_per_s is None else f"{row.plain_tok_per_s:,.0f}",
            None if row.over_plain is None else f"{row.over_plain:.2f}",
            None if row.same_as_plain is None else f"{row.same_as_plain:.0%}",
        )
        for row in rows
    ]
    title = f"{rows[0].num_prompts} prompts with {rows[0].method}, {rows[0].num_speculative_tokens} drafts a round"
    return tables.table(title, columns, cells, numeric=[*columns[1:3], *columns[4:]])


def speculation_table(rows: "Sequence[SpeculationRow]") -> Table:
    """Return tokens per second over plain decoding, a line per acceptance and batch size, a column per number."""
    kinds = list(dict.fromkeys(row.num_speculative_tokens for row in rows))
    found = {(row.text_acceptance_length, row.batch_size, row.num_speculative_tokens): row for row in rows}
    places = dict.fromkeys((row.text_acceptance_length, row.batch_size) for row in rows)
    columns = ("acceptance", "batch", "plain ms/token", *(f"k {kind}" for kind in kinds), "auto over best")
    cells = [
        (
            f"{length:g}",
            size,
            f"{found[length, size, 0].tpot_ms:.3f}",
            *(f"{found[length, size, kind].over_plain:.2f}" for kind in kinds),
            f"{found[length, size, kinds[-1]].over_best:.3f}",
        )
        for length, size in places
    ]
    return tables.table("Times as fast as plain decoding, medians", columns, cells, numeric=columns)


def modes_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return milliseconds per token, a line per graph policy and a column per batch size."""
    sizes = list(dict.fromkeys(row.batch_size for row in rows))
    found = {(row.policy, row.batch_size): f"{row.tpot_ms:.3f}" for row in rows}
    columns = ("graph policy", *(f"batch {size}" for size in sizes))
    cells = [(policy, *(found[policy, size] for size in sizes)) for policy in dict.fromkeys(row.policy for row in rows)]
    return tables.table("Milliseconds per token, medians", columns, cells, numeric=columns[1:])


def speed_up_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return how many times faster each engine was than those measured after it, turn by turn."""
    columns = ("engine", "over", "batch", "whole call", "per token", "same tokens")
    order = list(dict.fromkeys(row.name for row in rows))
    cells = [
        (
            row.name,
            other.over,
            row.batch_size,
            _ratio(other.total),
            _ratio(other.per_token),
            f"{other.equal_tokens:.0%}",
        )
        for row in rows
        for other in row.speed_ups
        if order.index(row.name) < order.index(other.over)
    ]
    return tables.table("Times as fast, pair by pair: median (min-max)", columns, cells, numeric=columns[2:])


def throughput_table(rows: "Sequence[ThroughputRow]") -> Table:
    """Return one line per engine."""
    columns = ("engine", "at once", "tokens/s in + out", "out", "requests/s", "first token ms", "ms/token")
    cells = [
        (
            f"{row.engine} {row.version}",
            row.concurrency,
            f"{row.total_tok_per_s:,.0f}",
            f"{row.output_tok_per_s:,.0f}",
            f"{row.requests_per_s:.2f}",
            _latencies(row.ttft_ms),
            _latencies(row.tpot_ms),
        )
        for row in rows
    ]
    return tables.table("Throughput; latencies: mean, median, p99", columns, cells, numeric=columns[1:])


def shares_table(rows: "Sequence[ThroughputRow]") -> Table:
    """Return how the steps ran, where an engine keeps record."""
    columns = ("engine", "at once", "steps", "full", "piecewise", "eager", "padding", "host ms/step")
    cells = [
        (
            row.engine,
            row.concurrency,
            shares.steps,
            *(f"{share:.1%}" for share in (shares.full, shares.piecewise, shares.eager, shares.padding)),
            None if shares.host_ms_per_step is None else f"{shares.host_ms_per_step:.3f}",
        )
        for row in rows
        if (shares := row.shares) is not None
    ]
    return tables.table("Steps", columns, cells, numeric=columns[1:])


def startup_table(rows: "Sequence[StartupRow]") -> Table:
    """Return seconds by phase, a column per engine; the last line is all of it."""
    starts = {f"{row.engine} {row.version}": row for row in rows}
    phases = list(dict.fromkeys(name for row in starts.values() for name in row.phases))
    cells = [
        (name, *(f"{row.phases[name]:.2f}" if name in row.phases else None for row in starts.values()))
        for name in phases
    ]
    total = ("process start to first token", *(f"{row.seconds:.2f}" for row in starts.values()))
    return tables.table("Seconds of the start", ("phase", *starts), [*cells, total], numeric=starts)


def graph_memory_table(rows: "Sequence[GraphMemoryRow]") -> Table:
    """Return what the graphs of each engine take."""
    columns = ("engine", "requests at most", "graphs", "GiB")
    cells = [(row.engine, row.max_num_seqs, row.num_graphs, f"{row.gib:.3f}") for row in rows]
    return tables.table("Graph memory", columns, cells, numeric=columns[1:])


def _latencies(values: "Latencies") -> str:
    return f"{values.mean:.2f}, {values.median:.2f}, {values.p99:.2f}"


def _ratio(spread: "Spread") -> str:
    return f"{spread.median:.2f} ({spread.min:.2f}-{spread.max:.2f})"
