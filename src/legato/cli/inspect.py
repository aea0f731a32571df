"""``legato inspect``: what Legato would do, without loading weights. Owns how the engine's reports look."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from legato.cli import tables
from legato.cli.dataclass_options import comma_separated_integers, takes_options
from legato.config.options import EngineOptions

app = typer.Typer(
    help="Show graphs, backends and plans for a model, without loading its weights.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@takes_options
def graphs(*, as_json: AsJson = False, engine: EngineOptions) -> None:
    """Show the graph policy, every decision behind it, and the graphs that would be captured."""
    from legato.engine.inspect import graph_report

    report = graph_report(engine)
    if as_json:
        _print_json(report)
        return
    console = Console()
    uniform = ", ".join(f"{mode} (query_len {width})" for width, mode in report["uniform"].items())
    console.print(f"graph policy {report['policy']} with backend {report['backend']}", style="bold")
    if report["compile"] != "none":
        console.print(f"between attention calls: code by {report['compile']}")
    console.print(f"mixed batches: {report['mixed']}; uniform batches: {uniform}")
    tokens = report["memory"]["kv_cache_tokens"]
    console.print(f"KV cache: {'measured at the start' if tokens is None else f'{tokens} tokens'}")
    catalog = [{name: value for name, value in entry.items() if name != "key"} for entry in report["catalog"]]
    for title, records in (("Decisions", report["decisions"]), ("Graphs", catalog)):
        console.print(tables.records_table(title, records) if records else f"{title}: none")


@app.command()
@takes_options
def backends(*, as_json: AsJson = False, engine: EngineOptions) -> None:
    """Show every attention backend with what it can do inside a full graph for this model, and why."""
    from legato.engine.inspect import backend_report

    report = backend_report(engine)
    if as_json:
        _print_json(report)
        return
    Console().print(tables.records_table("Attention backends", report))


@app.command()
@takes_options
def plan(
    *,
    query_lens: Annotated[
        str, typer.Option(metavar="N,N,…", help="Tokens of each request; 1, or a drafter's width: it decodes.")
    ] = "1",
    as_json: AsJson = False,
    engine: EngineOptions,
) -> None:
    """Show how a step with these requests would run: mode, graph, padding, and why not better."""
    from legato.engine.inspect import plan_report

    report = plan_report(engine, query_lens=comma_separated_integers(query_lens))
    if as_json:
        _print_json(report)
        return
    Console().print(tables.table("Plan", ("field", "value"), report.items()))


def _print_json(report: Any) -> None:
    print(json.dumps(report, indent=2, ensure_ascii=False))
