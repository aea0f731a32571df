"""The picture of ``legato bench serve``: latencies and throughput over load. Owns its look."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legato.bench.modes_plot import require_matplotlib
from legato.bench.serving.summary import MEASURES, Figure, by_case, figure
from legato.results.rows_file import Row

PANELS = (
    ("time to first token (ms)", (("median", "ttft_ms.median"), ("P99", "ttft_ms.p99"))),
    ("time per output token (ms)", (("median", "tpot_ms.median"), ("P99", "tpot_ms.p99"))),
    ("output tokens per second", (("throughput", "output_tok_per_s"),)),
)
_STYLES = {"median": ("o", "-", "#0072b2"), "P99": ("^", "--", "#d55e00"), "throughput": ("s", "-", "#009e73")}
"""Marker, line and colour: told apart without colour too."""
_BY_PATH = {measure.path: measure for measure in MEASURES}


def draw_loads(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, ``.png`` or ``.svg`` by its ending; bars are the range of repetitions.

    The load is the request rate where there are several, else the requests at once. Raises ConfigError without
    matplotlib.
    """
    require_matplotlib()
    from matplotlib.figure import Figure as Picture

    field, label = load_axis(rows)
    cases = by_case(rows)
    labels = [_load_text(runs[0][field]) for runs in cases.values()]
    picture = Picture(figsize=(11.0, 3.6), layout="constrained")
    for axes, (title, lines) in zip(picture.subplots(1, len(PANELS)), PANELS, strict=True):
        for name, measure in lines:
            _draw(axes, name, [figure(runs, _BY_PATH[measure]) for runs in cases.values()])
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlabel(label)
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, linewidth=0.4, color="#cccccc")
        if len(lines) > 1:
            axes.legend(fontsize=8)
    picture.suptitle(f"{rows[0]['engine']}: {rows[0]['model']}, {rows[0]['dataset']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


def load_axis(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the field that tells the loads apart, and its name."""
    if len({row["request_rate"] for row in rows}) > 1 or len({row["max_concurrency"] for row in rows}) == 1:
        return "request_rate", "requests per second"
    return "max_concurrency", "requests at once"


def _draw(axes: Any, name: str, figures: Sequence[Figure | None]) -> None:
    points = [(place, found) for place, found in enumerate(figures) if found is not None]
    marker, line, colour = _STYLES[name]
    axes.errorbar(
        [place for place, _ in points],
        [found.value for _, found in points],
        yerr=[found.value * (found.noise or 0.0) for _, found in points],
        label=name,
        marker=marker,
        linestyle=line,
        color=colour,
        markersize=5,
        linewidth=1.5,
        capsize=3,
    )


def _load_text(load: float | None) -> str:
    return "inf" if load is None else f"{load:g}"
