"""``legato run-batch``: a batch file in, its results out. Owns how a run looks on a terminal."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions

BATCH = "Batch"


def run_batch(
    *,
    input: Annotated[
        str,
        typer.Option(
            "--input", "-i", metavar="FILE", help="JSON lines: custom_id, method, url, body.", rich_help_panel=BATCH
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Rows; those that are there are kept.", rich_help_panel=BATCH
        ),
    ],
    max_concurrency: Annotated[int, typer.Option(metavar="N", help="Requests at once.", rich_help_panel=BATCH)] = 256,
    tool_call_parser: Annotated[
        Literal["auto", "llama3", "hermes", "none"],
        typer.Option(metavar="NAME", help="As of `legato serve`.", rich_help_panel=BATCH),
    ] = "auto",
    reasoning_parser: Annotated[
        Literal["auto", "think", "none"],
        typer.Option(metavar="NAME", help="As of `legato serve`.", rich_help_panel=BATCH),
    ] = "auto",
    engine: EngineOptions,
) -> None:
    """Answer a batch file of OpenAI's form, without a server.

    A run that was ended, in whatever way, goes on when it is started again: each line gets one row, none is lost.

    Example:

    - `legato run-batch -i requests.jsonl -o results.jsonl --model ./my-model`
    """
    from legato.server.batch.run import BatchJob
    from legato.server.batch.run import run_batch as run

    job = BatchJob(
        input=Path(input),
        output=Path(output),
        max_concurrency=max_concurrency,
        options=ServerOptions(tool_call_parser=tool_call_parser, reasoning_parser=reasoning_parser, ui=False),
    )
    console = Console(stderr=True)
    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        counts = run(job, engine, lambda done, lines: progress.update(task, completed=done, total=lines))
    kept = f"{counts.resumed} from an earlier run, " if counts.resumed else ""
    rows = f"{counts.resumed + counts.answered} of {counts.lines} rows"
    console.print(
        f"{output}: {rows}, {kept}{counts.answered} from this one, {counts.failed} of them with an error",
        markup=False,
        highlight=False,
    )
