"""``legato bench``: measurements that a user can repeat. Owns the commands; what they measure is bench's."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from legato.cli import bench_tables
from legato.cli.bench_options import LatencyOptions, OutputOptions, ThroughputOptions
from legato.cli.bench_progress import measuring
from legato.cli.bench_result import hand_over
from legato.cli.dataclass_options import takes_options
from legato.config.options import EngineOptions

if TYPE_CHECKING:  # they import torch
    from legato.bench.contestant import Contestant, SteppedEngine
    from legato.config.engine import EngineConfig

app = typer.Typer(help="Measure speed, beside a peer in the same run.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure speed, beside a peer in the same run."""


@app.command()
@takes_options
def latency(*, workload: LatencyOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure prefill and time per token, engines taking turns on the same prompts, greedily.

    Example:

    - `legato bench latency --dtype float32 --batch-size 1,8 --peer transformers --output result.json`
    """
    from legato.bench.latency import Workload, measure

    console = Console(stderr=True)
    contestants, config = _contestants(workload, engine.sized_for(max(workload.batch_size)), console)
    what = Workload(
        batch_sizes=workload.batch_size,
        input_len=workload.input_len,
        output_len=workload.output_len,
        turns=workload.iterations,
        warmup=workload.warmup,
        vocab_size=config.model.vocab_size,
        case_prefix=workload.case_prefix,
    )
    with measuring(console, "measuring", what.num_turns) as report:
        rows = measure(contestants, what, report)
    tables = (bench_tables.latency_table(rows), bench_tables.speed_up_table(rows))
    hand_over(rows, tables, config.device, output)


@app.command()
@takes_options
def throughput(*, workload: ThroughputOptions, output: OutputOptions, engine: EngineOptions) -> None:
    """Measure a closed loop: so many requests at once, a new one when one ends; greedy, of fixed lengths.

    Where `--max-num-seqs` is open, the engine is built for as many as run at once.

    Example:

    - `legato bench throughput --num-requests 128 --concurrency 16 --input-len 1024 --output-len 128 --peer vllm`
    """
    from legato.bench.closed_loop import LoopWorkload, measure_loop

    console = Console(stderr=True)
    if engine.max_num_seqs is None:
        engine = replace(engine, max_num_seqs=workload.concurrency)
    engines, config = _stepped_engines(workload, engine, console)
    what = LoopWorkload(
        case=workload.case or f"closed-{workload.concurrency}",
        num_requests=workload.num_requests,
        concurrency=workload.concurrency,
        input_len=workload.input_len,
        output_len=workload.output_len,
        warmup_requests=workload.concurrency if workload.warmup is None else workload.warmup,
        vocab_size=config.model.vocab_size,
    )
    rows = []
    for stepped in engines:
        with measuring(console, stepped.name, what.num_requests) as report:
            rows.append(measure_loop(stepped, what, report))
    tables = (bench_tables.throughput_table(rows), bench_tables.shares_table(rows))
    hand_over(rows, tables, config.device, output)


def _contestants(
    workload: LatencyOptions, engine: EngineOptions, console: Console
) -> "tuple[list[Contestant], EngineConfig]":
    """Build Legato once per policy, and the peer; return Legato's configuration too."""
    if workload.peer_alone:
        from legato.engine.resolve import resolve

        config = resolve(engine).config
        return _peers(workload.peer, engine, config), config
    from legato.bench.legato_contestant import LegatoContestant, contestant_per_policy

    if len(workload.mode) > 1:
        own = contestant_per_policy(engine, workload.mode, console)
    else:
        [policy] = workload.mode or (engine.graph_policy,)
        own = [LegatoContestant("legato", replace(engine, graph_policy=policy), console)]
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


def _stepped_engines(
    workload: ThroughputOptions, engine: EngineOptions, console: Console
) -> "tuple[list[SteppedEngine], EngineConfig]":
    """Build Legato, vLLM or both; return Legato's configuration too."""
    from legato.engine.resolve import resolve

    engines: list[SteppedEngine] = []
    config = resolve(engine).config
    if not workload.peer_alone:
        from legato.bench.legato_contestant import LegatoContestant

        engines.append(LegatoContestant("legato", engine, console))
    if workload.peer == "vllm":
        from legato.bench.vllm_peer import VllmPeer

        engines.append(VllmPeer(engine, config))
    return engines, config
