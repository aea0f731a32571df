"""The picture of ``legato bench modes``: time per token against batch size, a line per graph policy. Owns its look."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from legato.bench.latency import LatencyRow
from legato.errors import ConfigError

STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1))))
"""Marker and line of each series: told apart without colour too."""
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Of Okabe and Ito's palette, which colour-blind readers tell apart."""


def require_matplotlib() -> None:
    """Raise ConfigError where the library that draws is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "a plot needs matplotlib",
            {"requested": "--plot", "found": "matplotlib is not installed", "options": "pip install 'legato[plot]'"},
        )


def draw_modes(rows: Sequence[LatencyRow], path: Path) -> None:
    """Write the picture; its form is that of the file's ending, ``.png`` or ``.svg``."""
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    policies = list(dict.fromkeys(row.policy for row in rows))
    for index, policy in enumerate(policies):
        line = [row for row in rows if row.policy == policy]
        marker, dashes = STYLES[index % len(STYLES)]
        axes.plot(
            [row.batch_size for row in line],
            [row.tpot_ms for row in line],
            label=policy,
            marker=marker,
            linestyle=dashes,
            color=COLOURS[index % len(COLOURS)],
            markersize=5,
            linewidth=1.5,
        )
    sizes = sorted({row.batch_size for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch size")
    axes.set_ylabel("milliseconds per token")
    axes.set_title(f"{rows[0].model}, {rows[0].dtype}, {rows[0].backend}", fontsize=10)
    axes.grid(visible=True, linewidth=0.4, color="#cccccc")
    axes.legend(title="graph policy", fontsize=8, title_fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
