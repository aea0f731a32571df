"""``legato bench``: measurements that a user can repeat. Owns the commands; what they measure is bench's."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from legato.cli import bench_drafter, bench_serve, bench_speculation, bench_tables
from legato.cli.bench_engines import contestants, resolved_config, stepped_engines
from legato.cli.bench_options import LatencyOptions, ModesOptions, OutputOptions, StartupOptions, ThroughputOptions
from legato.cli.bench_progress import measuring
from legato.cli.bench_result import hand_over
from legato.cli.dataclass_options import takes_options
from legato.config.options import EngineOptions
from legato.graphs.modes import GraphPolicy

if TYPE_CHECKING:  # they import torch
    from collections.abc import Iterator, Sequence

    from legato.bench.contestant import Contestant
    from legato.bench.latency import LatencyRow
    from legato.config.engine import EngineConfig

LEGATO = "legato"
"""First word of the name of an engine of ours."""

app = typer.Typer(help="Measure speed, beside a peer in the same run.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure speed, beside a peer in the same run."""


app.command("serve")(takes_options(bench_serve.serve))
app.command("speculation")(takes_options(bench_speculation.speculation))
app.command("drafter")(takes_options(bench_drafter.drafter))


@app.command()
@takes_options
def latency(*, workload: LatencyOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure prefill and time per token, engines taking turns on the same prompts, greedily.

    Example:

    - `legato bench latency --dtype float32 --batch-size 1,8 --peer transformers --output result.json`
    """
    console = Console(stderr=True)
    engines, config = contestants(workload, engine.sized_for(max(workload.batch_size)), console)
    case_prefix = workload.case_prefix or _case_prefix(engine, config)
    rows = _measured(workload, engines, config, case_prefix, console)
    if workload.profile is not None:
        _profile_latency(workload, engines, config, Path(workload.profile) / case_prefix, console)
    tables = (
        bench_tables.latency_table(rows),
        bench_tables.acceptance_table(rows),
        bench_tables.speed_up_table(rows),
    )
    hand_over(rows, tables, config.device, output)


@app.command()
@takes_options
def modes(*, workload: ModesOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure one model under every graph policy, taking turns in one process over the same weights.

    Example:

    - `legato bench modes --batch-size 1,2,4,8 --plot modes.png`
    """
    from legato.bench.legato_contestant import contestant_per_policy
    from legato.bench.modes_plot import draw_modes, require_matplotlib

    if workload.plot is not None:
        require_matplotlib()
    console = Console(stderr=True)
    engine = engine.sized_for(max(workload.batch_size))
    engines = contestant_per_policy(engine, tuple(map(str, GraphPolicy)), console)
    config = engines[0].core.config
    rows = _measured(workload, engines, config, "modes", console)
    hand_over(rows, (bench_tables.modes_table(rows),), config.device, output)
    if workload.plot is not None:
        draw_modes(rows, Path(workload.plot))
        console.print(f"drew {workload.plot}", markup=False, highlight=False)


@app.command()
@takes_options
def throughput(*, workload: ThroughputOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure a closed loop: so many requests at once, a new one when one ends; greedy, of fixed lengths.

    Where `--max-num-seqs` is open, the engine is built for as many as run at once.

    Example:

    - `legato bench throughput --num-requests 128,256 --concurrency 16,64 --input-len 1024 --output-len 128 --peer vllm`
    """
    from legato.bench.closed_loop import measure_loop, run_once

    console = Console(stderr=True)
    if engine.max_num_seqs is None:
        engine = replace(engine, max_num_seqs=max(workload.concurrency))
    config = resolved_config(engine)
    loops = workload.loops(config.model.vocab_size)
    rows = []
    for stepped in stepped_engines(workload, engine, config, console):
        for loop in loops:
            with measuring(console, f"{stepped.name}, {loop.concurrency} at once", loop.num_requests) as report:
                rows.append(measure_loop(stepped, loop, report))
            if workload.profile is not None and stepped.name == LEGATO:
                with _profiled(Path(workload.profile) / f"{loop.case}.json", console):
                    run_once(stepped, loop)
    tables = (bench_tables.throughput_table(rows), bench_tables.shares_table(rows))
    hand_over(rows, tables, config.device, output)


@app.command()
@takes_options
def startup(*, workload: StartupOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure a fresh process from its start to the first token, by what the time goes into.

    Example:

    - `legato bench startup --cold --peer vllm --output result.json`
    """
    from legato.bench.startup import Startup, measure_startup

    console = Console(stderr=True)
    names = ["legato"] * (not workload.peer_alone) + [workload.peer] * (workload.peer != "none")
    starts, graphs = [], []
    for name in names:
        what = Startup(
            engine=name,
            options=engine,
            case=workload.case or ("startup-cold" if workload.cold else "startup-warm"),
            cold=workload.cold,
            iterations=workload.iterations,
        )
        with measuring(console, f"starting {name}", what.iterations) as report:
            start, memory = measure_startup(what, report)
        starts.append(start)
        graphs += [] if memory is None else [memory]
    tables = (bench_tables.startup_table(starts), bench_tables.graph_memory_table(graphs))
    hand_over([*starts, *graphs], tables, engine.device, output)


def _profile_latency(
    workload: LatencyOptions, engines: "Sequence[Contestant]", config: "EngineConfig", stem: Path, console: Console
) -> None:
    """Run one more turn of each of Legato's own engines, recorded; a peer's kernels may run in another process.

    Each file's name begins with ``stem``, which is that of the rows.
    """
    from legato.bench.prompts import fresh_prompts

    prompts = fresh_prompts(1, config.model.vocab_size, workload.input_len)
    for engine in (engine for engine in engines if engine.name.partition(" ")[0] == LEGATO):
        for batch_size in workload.batch_size:
            name = f"{stem.name}-b{batch_size}-{engine.name.replace(' ', '-')}.json"
            with _profiled(stem.with_name(name), console):
                engine.generate([next(prompts) for _ in range(batch_size)], workload.output_len)


@contextmanager
def _profiled(path: Path, console: Console) -> "Iterator[None]":
    from legato.device.profiler import profiled

    with profiled(path):
        yield
    console.print(f"wrote {path}", markup=False, highlight=False)


def _case_prefix(engine: EngineOptions, config: "EngineConfig") -> str:
    """Return the name of rows where none was given: of the drafter, and of the attention backend where one was."""
    if config.speculative is None:
        return "decode"
    from legato.bench.speculation import case_of

    return case_of(config.speculative, None if engine.attention_backend == "auto" else config.attention_backend)


def _measured(
    workload: LatencyOptions | ModesOptions,
    engines: "Sequence[Contestant]",
    config: "EngineConfig",
    case_prefix: str,
    console: Console,
) -> "list[LatencyRow]":
    """Measure latency, with a bar."""
    from legato.bench.latency import Workload, measure

    what = Workload(
        batch_sizes=workload.batch_size,
        input_len=workload.input_len,
        output_len=workload.output_len,
        turns=workload.iterations,
        warmup=workload.warmup,
        vocab_size=config.model.vocab_size,
        case_prefix=case_prefix,
    )
    with measuring(console, "measuring", what.num_turns) as report:
        return measure(engines, what, report)
