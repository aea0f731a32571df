"""docs/performance.md's tables, made from the result files. Owns the sections; one without rows is left out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from legato.cli.markdown import markdown_table
from legato.cli.performance_backends import backend_section, is_comparison
from legato.cli.performance_rows import (
    FOLDER,
    Found,
    ResultFile,
    by_device,
    file_link,
    found_rows,
    held_beside,
    key_of,
    latest,
    links,
    pairs,
    result_files,
)
from legato.cli.performance_serving import overhead_section, serving_section
from legato.cli.performance_speculation import drafter_section, is_sweep, round_cases, speculation_section

_SUBJECT = ("model", "dtype", "case")


def performance_page(root: Path) -> str:
    """Return all sections that there are rows for, and the list of files."""
    files = result_files(root)
    rows = found_rows(files)
    sections = [
        _per_device("Decode latency", rows, _latency),
        _per_device("Throughput", rows, _throughput),
        _per_device("Speculative decoding", rows, lambda rows: speculation_section(_single_engines(rows))),
        _per_device("Drafters on real prompts", rows, drafter_section),
        _per_device("Load on a server", rows, serving_section),
        _per_device("What the server adds", rows, overhead_section),
        _per_device("Start-up", rows, _startup),
        _per_device("Graph memory", rows, _graph_memory),
        _per_device("Graph policies", rows, _modes) + _pictures(root),
        _per_device("Piecewise against full and piecewise graphs", rows, backend_section),
        _per_device("Attention kernels", rows, _attention),
        _per_device("Beside transformers", rows, _transformers),
        _files(files),
    ]
    return "\n\n".join(section for section in sections if section)


def _per_device(title: str, rows: Sequence[Found], table: Callable[[Sequence[Found]], str]) -> str:
    """Return a section with a table for each device that has rows for it; nothing where none has."""
    parts = [f"### {device}\n\n{text}" for device, own in by_device(rows).items() if (text := table(own))]
    return "\n\n".join([f"## {title}", *parts]) if parts else ""


def _latency(rows: Sequence[Found]) -> str:
    """Return milliseconds per output token beside vLLM's."""
    engines = _single_engines(rows)
    rounds = round_cases(engines)
    measured = [
        row
        for row in engines
        if row.get("batch_size")
        and row.get("tpot_ms")
        and not row["case"].startswith("modes")
        and row["case"] not in rounds
    ]
    columns = (
        "case",
        "model",
        "tokens in / out",
        "Legato ms/token",
        "vLLM ms/token",
        "times as fast",
        "host ms/step",
        "files",
    )
    lines = [
        (
            f"`{own['case']}`",
            f"{own['model']}, {own['dtype']}",
            f"{own['input_len']} / {own['output_len']}",
            f"{own['tpot_ms']:.3f}",
            *held_beside(own, other, "tpot_ms", lambda mine, its: its / mine, "{:.3f}"),
            "-" if own.get("host_ms_per_step") is None else f"{own['host_ms_per_step']:.3f}",
            links(own, other),
        )
        for own, other in pairs(measured, (*_SUBJECT, "input_len", "output_len"))
    ]
    return markdown_table(columns, lines) if lines else ""


def _throughput(rows: Sequence[Found]) -> str:
    """Return tokens per second beside vLLM's."""
    measured = [row for row in _single_engines(rows) if row.get("concurrency") and row.get("total_tok_per_s")]
    columns = (
        "case",
        "model",
        "requests, tokens in / out",
        "Legato tokens/s",
        "vLLM tokens/s",
        "times as fast",
        "first token ms, mean and p99",
        "vLLM's",
        "steps in full graphs",
        "files",
    )
    lines = [
        (
            f"`{own['case']}`",
            f"{own['model']}, {own['dtype']}",
            f"{own['num_requests']}, {own['input_len']} / {own['output_len']}",
            f"{own['total_tok_per_s']:,.0f}",
            *held_beside(own, other, "total_tok_per_s", lambda mine, its: mine / its, "{:,.0f}"),
            _first_token(own),
            "-" if other is None else _first_token(other),
            f"{own['shares']['full']:.0%}",
            links(own, other),
        )
        for own, other in pairs(measured, (*_SUBJECT, "num_requests", "concurrency", "input_len", "output_len"))
    ]
    return markdown_table(columns, lines) if lines else ""


def _startup(rows: Sequence[Found]) -> str:
    """Return seconds by phase, a line per engine."""
    measured = latest((row for row in rows if row.get("phases")), key_of(("engine", *_SUBJECT)))
    if not measured:
        return ""
    phases = list(dict.fromkeys(phase for row in measured for phase in row["phases"]))
    lines = [
        (
            f"`{row['case']}`",
            f"{row['engine']} {row['version']}",
            row["model"],
            f"{row['seconds']:.1f}",
            *(f"{row['phases'][phase]:.1f}" if phase in row["phases"] else "-" for phase in phases),
            row.link,
        )
        for row in measured
    ]
    return markdown_table(("case", "engine", "model", "seconds", *phases, "file"), lines)


def _graph_memory(rows: Sequence[Found]) -> str:
    """Return what all graphs take, a line per engine."""
    measured = latest(
        (row for row in rows if row.get("gib") is not None), key_of(("engine", *_SUBJECT, "max_num_seqs"))
    )
    lines = [
        (
            f"{row['engine']} {row['version']}",
            row["model"],
            str(row["max_num_seqs"]),
            "-" if row["num_graphs"] is None else str(row["num_graphs"]),
            f"{row['gib']:.2f}",
            row.link,
        )
        for row in measured
    ]
    return markdown_table(("engine", "model", "requests at most", "graphs", "GiB", "file"), lines) if lines else ""


def _modes(rows: Sequence[Found]) -> str:
    """Return milliseconds per token, a line per policy and a column per batch size."""
    modes = [row for row in rows if str(row.get("case")).startswith("modes-b")]
    sizes = sorted({row["batch_size"] for row in modes})
    found = {(row["model"], row["policy"], row["batch_size"]): row for row in modes}
    lines = [
        (
            f"`{policy}`",
            model,
            *(
                f"{found[model, policy, size]['tpot_ms']:.3f}" if (model, policy, size) in found else "-"
                for size in sizes
            ),
            link,
        )
        for (model, policy), link in {(row["model"], row["policy"]): row.link for row in modes}.items()
    ]
    columns = ("policy", "model", *(f"batch {size}, ms/token" for size in sizes), "file")
    return markdown_table(columns, lines) if lines else ""


def _pictures(root: Path) -> str:
    names = [path.name for path in sorted((root / FOLDER).glob("*modes*.png"))]
    return "".join(f"\n\n![Time per token by graph policy](../{FOLDER}/{name})" for name in names)


def _attention(rows: Sequence[Found]) -> str:
    """Return microseconds of one attention call, a column per backend."""
    timed = [row for row in rows if "us" in row.row or "refused" in row.row]
    if not any("us" in row.row for row in timed):
        return ""
    backends = list(dict.fromkeys(row["backend"] for row in timed if "us" in row.row))
    found = {(row["row"], row["backend"]): row for row in timed if "us" in row.row}
    lines = [
        (
            batch,
            *(f"{found[batch, name]['us']:.1f}" if (batch, name) in found else "-" for name in backends),
            next(row.link for (one, _), row in found.items() if one == batch),
        )
        for batch in dict.fromkeys(batch for batch, _ in found)
    ]
    return markdown_table(("batch", *(f"`{name}`, µs" for name in backends), "file"), lines)


def _transformers(rows: Sequence[Found]) -> str:
    """Return the pairs that took turns with transformers on the same prompts."""
    key = key_of(("model", "dtype", "name", "batch_size", "input_len", "output_len"))
    compared = latest((row for row in rows if row.get("speed_ups") and row["engine"] == "legato"), key)
    lines = [
        (
            row["name"],
            f"{row['model']}, {row['dtype']}",
            str(row["batch_size"]),
            f"{row['tpot_ms']:.2f}",
            f"{over['per_token']['median']:.2f} ({over['per_token']['min']:.2f}-{over['per_token']['max']:.2f})",
            f"{over['total']['median']:.2f}",
            f"{over['equal_tokens']:.0%}",
            row.link,
        )
        for row in compared
        for over in row["speed_ups"]
        if over["over"] == "transformers"
    ]
    columns = (
        "engine",
        "model",
        "batch",
        "ms/token",
        "times as fast per token (min-max)",
        "whole call",
        "equal tokens",
        "file",
    )
    return markdown_table(columns, lines) if lines else ""


def _files(files: Sequence[ResultFile]) -> str:
    """Return every result file with the machine, the commit and the command that it comes from."""
    lines = [(file_link(file.name, file.name), file.device, file.commit[:7], f"`{file.command}`") for file in files]
    return "## Files\n\n" + markdown_table(("file", "device", "commit", "command"), lines) if lines else ""


def _single_engines(rows: Sequence[Found]) -> list[Found]:
    """Return the rows of files that hold Legato to vLLM, not Legato to itself or to transformers."""
    others = {row.file for row in rows if row.get("engine") == "transformers"}
    others |= {row.file for row in rows if is_comparison(rows, row.file)}
    held = (row for row in rows if row.file not in others and not is_sweep(row))
    return [row for row in held if row.get("engine") in ("legato", "vllm")]


def _first_token(row: Found) -> str:
    summary: dict[str, Any] = row["ttft_ms"]
    return f"{summary['mean']:.0f}, {summary['p99']:.0f}"
