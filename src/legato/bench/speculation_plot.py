"""The picture of ``legato bench speculation``: speed over plain decoding, a panel per batch size. Owns its look."""

from collections.abc import Sequence
from pathlib import Path

from legato.bench.modes_plot import COLOURS, STYLES, require_matplotlib
from legato.bench.speculation import AUTO, SpeculationRow


def draw_speculation(rows: Sequence[SpeculationRow], path: Path) -> None:
    """Write the picture; its form is that of the file's ending, ``.png`` or ``.svg``."""
    require_matplotlib()
    from matplotlib.figure import Figure

    sizes = sorted({row.batch_size for row in rows})
    kinds = list(dict.fromkeys(row.num_speculative_tokens for row in rows))
    figure = Figure(figsize=(3.2 * len(sizes), 3.4), layout="constrained")
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axes, size in zip(panels, sizes, strict=True):
        for index, kind in enumerate(kinds):
            line = [row for row in rows if (row.batch_size, row.num_speculative_tokens) == (size, kind)]
            marker, dashes = STYLES[index % len(STYLES)]
            axes.plot(
                [row.text_acceptance_length for row in line],
                [row.over_plain for row in line],
                label=kind if kind == AUTO else f"k = {kind}",
                marker=marker,
                linestyle="-" if kind == AUTO else dashes,
                color="#000000" if kind == AUTO else COLOURS[1 + index % (len(COLOURS) - 1)],
                linewidth=2.4 if kind == AUTO else 1.2,
                markersize=5 if kind == AUTO else 4,
            )
        axes.set_title(f"batch {size}", fontsize=9)
        axes.set_xlabel("acceptance length")
        axes.grid(visible=True, linewidth=0.4, color="#cccccc")
    panels[0].set_ylabel("tokens per second over plain decoding")
    panels[-1].legend(fontsize=7)
    figure.suptitle(f"{rows[0].method} on {rows[0].model}, {rows[0].dtype}, {rows[0].backend}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
