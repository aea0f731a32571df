# ruff: noqa: TID251
"""What the graphs of an engine take, by part, on a GPU: estimated, actual, and the largest contributors.

    python benchmarks/graph_memory.py FOLDER [FOLDER …] [--load-format auto] [--max-num-seqs N]
        [--kv-cache-memory-bytes N]

Graphs share one pool for what they compute on the way: its segments are listed by size, since the largest tensors that
live at once explain them. Beside it the driver keeps memory for each graph, of which a graph has its share by size.
"""

import argparse
import gc
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore

_MIB = 1 << 20
_LARGEST = 12


def main(arguments: Sequence[str] | None = None) -> None:
    """Build an engine per model, one after another, and print where its memory went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--load-format", default="dummy")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--kv-cache-memory-bytes", type=int)
    given = parser.parse_args(arguments)
    console = Console(width=160)
    for model in given.models:
        console.rule(model)
        started = time.perf_counter()
        core = build_engine(
            EngineOptions(
                model=model,
                load_format=given.load_format,
                max_num_seqs=given.max_num_seqs,
                kv_cache_memory_bytes=given.kv_cache_memory_bytes,
            ),
            console,
        )
        console.print(f"built in {time.perf_counter() - started:.1f} s")
        report = core.graph_report()
        console.print(_totals(report))
        console.print(_kinds(report))
        if torch.cuda.is_available():
            console.print(_account(core, report))
            console.print(_pool_segments())
        del core
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _totals(report: dict[str, Any]) -> Table:
    table = Table("what", "MiB", title="Memory", title_justify="left")
    own = sum(entry["bytes"] for entry in report["catalog"])
    for name, num_bytes in (*report["memory"].items(), ("graphs: shared pool", report["shared_bytes"])):
        table.add_row(name, str(num_bytes) if name.endswith("tokens") else _mib(num_bytes))
    table.add_row("graphs: their own", _mib(own))
    return table


def _kinds(report: dict[str, Any]) -> Table:
    """Return graphs, nodes and bytes by mode and sampler."""
    graphs, nodes, num_bytes = Counter[str](), Counter[str](), Counter[str]()
    for entry in report["catalog"]:
        kind = f"{entry['mode']} {entry['sampler'] or ''}"
        graphs[kind] += 1
        nodes[kind] += entry["nodes"]
        num_bytes[kind] += entry["bytes"]
    table = Table("kind", "graphs", "nodes", "own MiB", title="Graphs", title_justify="left")
    for kind in graphs:
        table.add_row(kind, str(graphs[kind]), str(nodes[kind]), _mib(num_bytes[kind]))
    table.add_row("all", str(graphs.total()), str(nodes.total()), _mib(num_bytes.total()), str(len(report["dropped"])))
    return table


def _account(core: EngineCore, report: dict[str, Any]) -> str:
    """Return what is in use on the GPU beyond what the report explains: context, kernels, workspaces, rows."""
    free, total = torch.cuda.mem_get_info()
    memory = report["memory"]
    told = memory["weights"] + memory["kv_cache"] + memory["graphs"]
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return (
        f"in use {_mib(total - free)} MiB, explained {_mib(told)}, the rest {_mib(total - free - told)} "
        f"(allocator: reserved {_mib(torch.cuda.memory_reserved())}, of which free {_mib(cached)}); "
        f"{core.config.cache.num_blocks} blocks"
    )


def _pool_segments() -> Table:
    """Return the segments of private pools by size, with what of them is held."""
    segments = [part for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) != (0, 0)]
    segments.sort(key=lambda part: part["total_size"], reverse=True)
    table = Table("segment MiB", "held MiB", "requested by holders", title="Pool", title_justify="left")
    for part in segments[:_LARGEST]:
        held = sorted((block["size"] for block in part["blocks"] if block["state"] != "inactive"), reverse=True)
        table.add_row(_mib(part["total_size"]), _mib(part["allocated_size"]), ", ".join(map(_mib, held[:6])))
    rest = segments[_LARGEST:]
    table.add_row(
        f"{len(rest)} more: {_mib(sum(part['total_size'] for part in rest))}",
        _mib(sum(part["allocated_size"] for part in rest)),
        "",
    )
    return table


def _mib(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else f"{num_bytes / _MIB:.1f}"


if __name__ == "__main__":
    main()
