"""How an error of Legato's own meets the user."""

import io

import pytest
from rich.console import Console

from legato.cli.errors import exit_code, print_error
from legato.errors import BackendError, EngineDeadError, GraphCaptureError, LegatoError, RequestError, WeightsError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendError("x"), 2),
        (WeightsError("x"), 2),
        (RequestError("x"), 2),
        (EngineDeadError("x"), 1),
        (GraphCaptureError("x"), 1),
    ],
)
def test_the_status_tells_whether_another_command_line_can_help(error: LegatoError, code: int) -> None:
    assert exit_code(error) == code


def test_details_are_aligned_below_the_summary_and_never_wrapped() -> None:
    text = io.StringIO()
    error = BackendError("no such backend", {"requested": "x" * 200, "options": "[a] | b"})
    print_error(error, Console(file=text, width=80))
    summary, requested, options = text.getvalue().splitlines()
    assert summary == "BackendError: no such backend"
    assert requested == "  requested  " + "x" * 200
    assert options == "  options    [a] | b"
