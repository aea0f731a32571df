"""``legato`` as typed: the whole command in this process, with what it printed and how it ended."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from legato.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output, which must be JSON lines and nothing else."""
        return [json.loads(line) for line in self.out.splitlines()]


def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str, columns: int | None = None
) -> Ended:
    """Run ``legato`` with the arguments; ``columns``: the width of its terminal, which tables are folded to."""
    monkeypatch.setattr(sys, "argv", ["legato", *arguments])
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ending:
        main()
    captured = capsys.readouterr()
    return Ended(int(ending.value.code or 0), captured.out, captured.err)
