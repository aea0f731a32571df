"""``legato bench``: measurements that a user can repeat. Owns their options and tables; measuring is bench's."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from legato.cli import tables
from legato.cli.dataclass_options import takes_options
from legato.config.options import EngineOptions, option
from legato.graphs.modes import GraphPolicy

if TYPE_CHECKING:  # they import torch
    from legato.bench.contestant import Contestant
    from legato.bench.latency import LatencyRow, Spread
    from legato.config.engine import EngineConfig

WORKLOAD = "Workload"

app = typer.Typer(help="Measure speed, beside a peer in the same run.", no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions:
    """What ``legato bench latency`` measures, as typed."""

    batch_size: tuple[int, ...] = option(
        (1, 8), "Requests at once; several sizes are measured one by one.", metavar="N,N,…", panel=WORKLOAD
    )
    input_len: int = option(128, "Tokens of each prompt.", panel=WORKLOAD)
    output_len: int = option(64, "Tokens generated for each prompt.", panel=WORKLOAD)
    iterations: int = option(5, "Turns that count.", panel=WORKLOAD)
    warmup: int = option(1, "Turns before them that do not.", panel=WORKLOAD)
    mode: tuple[str, ...] = option(
        (),
        "Graph policy to measure; repeated, the policies take turns. Default: that of --graph-policy.",
        choices=tuple(map(str, GraphPolicy)),
        panel=WORKLOAD,
    )
    peer: str = option(
        "none", "Engine to measure in the same run.", choices=("none", "transformers", "vllm"), panel=WORKLOAD
    )
    peer_alone: bool = option(
        False, "Measure the peer by itself, on a device that cannot hold both engines.", panel=WORKLOAD
    )
    output: str | None = option(None, "File for the result, as JSON.", metavar="FILE", panel=WORKLOAD)


@app.callback()
def group() -> None:
    """Measure speed, beside a peer in the same run."""


@app.command()
@takes_options
def latency(*, workload: LatencyOptions, engine: EngineOptions) -> None:
    """Measure prefill and time per token, engines taking turns on the same prompts, greedily.

    Example:

    - `legato bench latency --dtype float32 --batch-size 1,8 --peer transformers --output result.json`
    """
    from legato.bench.latency import Workload, measure

    console = Console(stderr=True)
    with console.status("building the engines") as status:
        contestants, config = _contestants(workload, engine)
        what = Workload(
            batch_sizes=workload.batch_size,
            input_len=workload.input_len,
            output_len=workload.output_len,
            turns=workload.iterations,
            warmup=workload.warmup,
            vocab_size=config.model.vocab_size,
        )
        rows = measure(contestants, what, status.update)
    Console().print(_latency_table(rows), _speed_up_table(rows))
    if workload.output is not None:
        _write(rows, config, Path(workload.output))
        console.print(f"wrote {workload.output}")


def _contestants(workload: LatencyOptions, engine: EngineOptions) -> "tuple[list[Contestant], EngineConfig]":
    """Build Legato once per policy, and the peer; return Legato's configuration too."""
    if workload.peer_alone:
        from legato.engine.resolve import resolve

        config = resolve(engine).config
        return _peers(workload.peer, engine, config), config
    from legato.bench.legato_contestant import LegatoContestant

    policies = workload.mode or (engine.graph_policy,)
    own = [
        LegatoContestant(f"legato {policy}" if policy else "legato", replace(engine, graph_policy=policy))
        for policy in policies
    ]
    config = own[0].core.config
    return [*own, *_peers(workload.peer, engine, config)], config


def _peers(name: str, engine: EngineOptions, config: "EngineConfig") -> "list[Contestant]":
    if name == "transformers":
        from legato.bench.transformers_peer import TransformersPeer

        return [TransformersPeer(engine.model, engine.load_format, config.dtype, config.device)]
    if name == "vllm":
        from legato.bench.vllm_peer import VllmPeer

        return [VllmPeer(engine, config)]
    return []


def _latency_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return the medians, one line per engine and batch size."""
    columns = ("engine", "batch", "prefill ms", "ms/token", "tokens/s")
    cells = [
        (row.engine, row.batch_size, f"{row.prefill_ms:.1f}", f"{row.ms_per_token:.2f}", f"{row.tokens_per_s:.1f}")
        for row in rows
    ]
    return tables.table("Latency, medians", columns, cells, numeric=columns[1:])


def _speed_up_table(rows: "Sequence[LatencyRow]") -> Table:
    """Return how many times faster each engine was than those measured after it, turn by turn."""
    columns = ("engine", "over", "batch", "whole call", "per token", "same tokens")
    order = list(dict.fromkeys(row.engine for row in rows))
    cells = [
        (
            row.engine,
            other.over,
            row.batch_size,
            _ratio(other.total),
            _ratio(other.per_token),
            f"{other.equal_tokens:.0%}",
        )
        for row in rows
        for other in row.speed_ups
        if order.index(row.engine) < order.index(other.over)
    ]
    return tables.table("Times as fast, pair by pair: median (min-max)", columns, cells, numeric=columns[2:])


def _ratio(spread: "Spread") -> str:
    return f"{spread.median:.2f} ({spread.min:.2f}-{spread.max:.2f})"


def _write(rows: "Sequence[LatencyRow]", config: "EngineConfig", path: Path) -> None:
    from legato.bench.result_file import LatencyResult
    from legato.device.registry import open_device
    from legato.results.place import this_commit, this_environment
    from legato.results.result_file import write_result

    result = LatencyResult(
        environment=this_environment(str(open_device(config.device).facts)),
        command=shlex.join(["legato", *sys.argv[1:]]),
        commit=this_commit(),
        model=config.model_name,
        dtype=config.dtype,
        rows=tuple(rows),
    )
    write_result(result, path)
