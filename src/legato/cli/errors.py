"""Errors -> the terminal. Owns how an error looks and which exit code it gives."""

from rich.console import Console
from rich.text import Text

from legato.errors import ConfigError, LegatoError, ModelError, RequestError

USAGE = 2
"""What was asked for cannot be had: another command line can help."""
FAILURE = 1
"""It could be had, and went wrong."""


def exit_code(error: LegatoError) -> int:
    """Return 2 where the command line is to blame, else 1."""
    return USAGE if isinstance(error, (ConfigError, ModelError, RequestError)) else FAILURE


def print_error(error: LegatoError, console: Console) -> None:
    """Print the summary in red and the labelled details below it, aligned."""
    summary, *details = str(error).splitlines()
    console.print(Text(f"{type(error).__name__}: {summary}", style="bold red"), soft_wrap=True)
    for line in details:
        console.print(Text(line), soft_wrap=True)
