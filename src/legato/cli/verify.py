"""``legato verify``: proof that graphs give what eager steps give. Owns options, progress and table, and no check."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from legato.cli import tables
from legato.config.options import EngineOptions, option
from legato.graphs.modes import GraphPolicy

if TYPE_CHECKING:  # they import torch
    from legato.verify.report import Report
    from legato.verify.session import Progress

VERIFICATION = "Verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What ``legato verify`` runs, as typed."""

    prompts: str | None = option(
        None, "File of prompts, one a line: text, or a JSON list of token ids.", metavar="FILE", panel=VERIFICATION
    )
    max_tokens: int = option(16, "Tokens generated for each prompt.", panel=VERIFICATION)
    policy: tuple[str, ...] = option(
        (),
        "Graph policy to verify; repeat for several. Default: all.",
        choices=tuple(map(str, GraphPolicy)),
        panel=VERIFICATION,
    )


def verify(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    what: VerifyOptions,
    engine: EngineOptions,
) -> None:
    """Prove that every graph gives what an eager step gives, for this model and these options.

    The exit status is 1 where it does not; the first difference is then named by key, layer and token.

    Examples:

    - `legato verify`
    - `legato verify --model ./my-model --graph-sizes 1,2,4,8 --policy full_and_piecewise --json`
    """
    from legato.verify.session import VerifyRequest
    from legato.verify.session import verify as run

    console = Console(stderr=True)
    request = VerifyRequest(
        options=engine,
        policies=tuple(map(GraphPolicy, what.policy)) or tuple(GraphPolicy),
        prompts=None if what.prompts is None else Path(what.prompts),
        max_tokens=what.max_tokens,
    )
    with _progress(console) as progress:
        report = run(request, console, progress)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report, Console())
    raise typer.Exit(0 if report.passed else 1)


@contextmanager
def _progress(console: Console) -> "Iterator[Progress]":
    """Show how many graphs of an engine are checked; its building has bars of its own."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("checking {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar: Progress | None = None

    def tell(engine: str, done: int, total: int, what: str) -> None:
        nonlocal bar
        if bar is None:
            bar = Progress(*columns, console=console, transient=True)
            bar.add_task(engine, total=total)
            bar.start()
        bar.update(bar.task_ids[0], completed=done, description=f"{engine}: {what}")
        if done == total:
            bar.stop()
            bar = None

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


def _show(report: "Report", console: Console) -> None:
    console.print(_table(report))
    allowed = f"{report.relative_tolerance:g} of the largest value for {report.dtype}"
    console.print(f"Same shapes: equal to the bit. Other shapes or kernels: each within {allowed}.", style="dim")
    if report.seen_apart > 0:
        seen = f"{2 * report.seen_apart:.2g}, twice what plain attention was apart from engine none"
        console.print(f"Log-probabilities of the prompts may be {seen}, where that is more.", style="dim")
    for note in report.notes:
        console.print(Text(note, style="yellow"))
    if report.passed:
        console.print("verified", style="bold green")
        return
    first, *others = report.findings
    console.print(Text(f"not verified: {first}", style="bold red"), soft_wrap=True)
    for finding in others:
        console.print(Text(str(finding)), soft_wrap=True)


def _table(report: "Report") -> Table:
    numeric = ("graphs", "dropped", "used", "tokens", "ties", "apart", "s")
    rows = [
        (
            engine.name,
            engine.num_keys,
            engine.num_dropped,
            min(engine.num_reachable, engine.num_replayed),
            engine.num_tokens,
            engine.num_near_ties,
            f"{max(engine.max_logit_difference, engine.max_logprob_difference):.1e}",
            f"{engine.seconds:.1f}",
            "ok" if engine.passed else "FAIL",
        )
        for engine in report.engines
    ]
    title = f"{report.model}, {report.dtype} on {report.device}, attention {report.attention_backend}"
    return tables.table(title, ("engine", *numeric, ""), rows, numeric=numeric)
