"""The ``legato`` command: its sub-commands, and what happens to an error. Imports no torch: ``--help`` is instant."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from legato.cli import bench, chat, eval, generate, inspect, run_batch, serve, train_drafter, verify
from legato.cli.dataclass_options import takes_options
from legato.cli.errors import exit_code, print_error
from legato.cli.spellings import written_out
from legato.config import environment
from legato.errors import LegatoError

SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="Serve large language models as CUDA graphs, with proof of which graph ran.",
    context_settings=SETTINGS,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for name, command in (
    ("generate", generate.generate),
    ("chat", chat.chat),
    ("serve", serve.serve),
    ("run-batch", run_batch.run_batch),
    ("verify", verify.verify),
    ("train-drafter", train_drafter.train_drafter),
):
    app.command(name, context_settings=SETTINGS)(takes_options(command))
app.add_typer(inspect.app, name="inspect")
app.add_typer(bench.app, name="bench")
app.add_typer(eval.app, name="eval")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"legato {version('legato')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Serve large language models as CUDA graphs, with proof of which graph ran."""


def main() -> None:
    """Run the command line. An error of Legato's own is printed without its traceback, unless LEGATO_DEBUG is set."""
    try:
        app(args=written_out(sys.argv[1:]))
    except LegatoError as error:
        print_error(error, Console(stderr=True))
        if environment.debug():
            raise
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
