"""How rows of ``legato bench`` and ``eval`` are handed over: tables or JSON, and the file. Owns no measurement."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from legato.cli.bench_options import OutputOptions


def hand_over(
    rows: Sequence[object], tables: Sequence[Table], device: str, output: OutputOptions, *, elsewhere: str | None = None
) -> None:
    """Print the rows, and write them where a file was named.

    ``device``: ``cpu`` or ``cuda``; ``elsewhere``: what was measured instead, where it is no device of this process.
    """
    import msgspec

    if output.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(list(rows)), indent=2).decode() + "\n")
    else:
        Console().print(*(table for table in tables if table.row_count))
    if output.output is not None:
        _write(rows, device, Path(output.output), elsewhere, append=output.append)
        Console(stderr=True).print(f"wrote {output.output}", markup=False, highlight=False)


def _write(rows: Sequence[object], device: str, path: Path, elsewhere: str | None, *, append: bool) -> None:
    from legato.device.registry import open_device
    from legato.results.place import this_commit, this_environment
    from legato.results.rows_file import portable_command, write_rows

    write_rows(
        path,
        rows,
        environment=this_environment(elsewhere or str(open_device(device).facts)),
        command=portable_command(sys.argv[1:]),
        commit=this_commit(),
        append=append,
    )
