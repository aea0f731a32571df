"""The committed sweeps of ``legato bench speculation`` -> Markdown. Owns what of a sweep is told in words."""

from collections.abc import Sequence
from pathlib import Path

from legato.cli.markdown import markdown_table
from legato.cli.performance_rows import FOLDER, Found, found_rows, result_files
from legato.cli.performance_speculation import is_sweep

_PLACE = ("text_acceptance_length", "batch_size")
_AUTO = "auto"


def speculation_sweeps(root: Path) -> str:
    """Return each sweep with its picture, where it has one, and what the engine's choice came to."""
    rows = [row for row in found_rows(result_files(root)) if is_sweep(row)]
    files = dict.fromkeys(row.file for row in rows)
    return "\n\n".join(_sweep(root, [row for row in rows if row.file == name]) for name in files)


def _sweep(root: Path, rows: Sequence[Found]) -> str:
    first = rows[0]
    picture = Path(FOLDER) / first.file.replace(".json", ".png")
    title = f"`{first['method']}` on {first['model']}, {first['dtype']}, {first.device}"
    worst = min(row["over_best"] for row in rows if row["num_speculative_tokens"] == _AUTO)
    parts = [
        f"![Speed over plain decoding by acceptance: {title}](../{picture})" if (root / picture).exists() else "",
        f"{title}: the engine's choice has at least {worst:.3f} times the speed of the best fixed number of drafts, "
        f"none among them ({first.link}).",
        _table(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(rows: Sequence[Found]) -> str:
    """Return speed over plain decoding, a line per acceptance and batch size, a column per number of drafts."""
    kinds = list(dict.fromkeys(row["num_speculative_tokens"] for row in rows))
    found = {(*map(row.get, _PLACE), row["num_speculative_tokens"]): row for row in rows}
    lines = [
        (
            f"{length:g}",
            str(size),
            f"{found[length, size, 0]['tpot_ms']:.3f}",
            *(f"{found[length, size, kind]['over_plain']:.2f}" for kind in kinds if kind != 0),
            f"{found[length, size, _AUTO]['over_best']:.3f}",
        )
        for length, size in dict.fromkeys(tuple(map(row.get, _PLACE)) for row in rows)
    ]
    names = (f"k = {kind}" if kind != _AUTO else _AUTO for kind in kinds if kind != 0)
    return markdown_table(("acceptance", "batch", "plain ms/token", *names, "auto over best"), lines)
