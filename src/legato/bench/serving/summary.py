"""Rows of several runs -> one figure per measure, with its noise. Owns which measures are shown, and their order.

Rows are JSON values, so that those of a file and those just measured are the same. The noise of a figure is half the
range of its repetitions over their median; one run alone tells nothing of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from legato.errors import ConfigError
from legato.results.rows_file import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of a table."""

    label: str
    path: str
    """Names of fields, with dots between."""
    digits: int = 2
    more_is_better: bool | None = None
    """None: neither."""
    is_share: bool = False


def _latency(label: str, field: str) -> list[Measure]:
    return [
        Measure(label=f"{name} {label} (ms)", path=f"{field}.{path}", more_is_better=False)
        for name, path in (("mean", "mean"), ("median", "median"), ("P99", "p99"))
    ]


MEASURES = (
    Measure(label="successful requests", path="completed", digits=0),
    Measure(label="failed requests", path="failed", digits=0, more_is_better=False),
    Measure(label="unfinished requests", path="unfinished", digits=0),
    Measure(label="duration (s)", path="seconds", more_is_better=False),
    Measure(label="input tokens", path="input_tokens", digits=0),
    Measure(label="generated tokens", path="output_tokens", digits=0),
    Measure(label="request throughput (1/s)", path="requests_per_s", digits=3, more_is_better=True),
    Measure(label="request goodput (1/s)", path="goodput.requests_per_s", digits=3, more_is_better=True),
    Measure(label="requests within targets", path="goodput.share", more_is_better=True, is_share=True),
    Measure(label="output throughput (tok/s)", path="output_tok_per_s", more_is_better=True),
    Measure(label="peak output throughput (tok/s)", path="peak_output_tok_per_s", more_is_better=True),
    Measure(label="total throughput (tok/s)", path="total_tok_per_s", more_is_better=True),
    Measure(label="peak concurrent requests", path="peak_concurrency", digits=0),
    Measure(label="fastest request over slowest", path="fairness.ratio", more_is_better=False),
    *_latency("TTFT", "ttft_ms"),
    *_latency("TPOT", "tpot_ms"),
    *_latency("ITL", "itl_ms"),
    *_latency("E2E", "e2e_ms"),
    Measure(label="acceptance length", path="server.acceptance.length", digits=3, more_is_better=True),
    Measure(label="drafts accepted", path="server.acceptance.share", is_share=True, more_is_better=True),
    Measure(label="steps, the drafter's included", path="server.shares.steps", digits=0),
    Measure(label="steps in full graphs", path="server.shares.full", is_share=True),
    Measure(label="steps in piecewise graphs", path="server.shares.piecewise", is_share=True),
    Measure(label="steps without a graph", path="server.shares.eager", is_share=True),
    Measure(label="padding of tokens computed", path="server.shares.padding", is_share=True),
    Measure(label="prefix cache hits", path="server.prefix_hit_share", is_share=True),
    Measure(label="preemptions", path="server.preemptions", digits=0),
    Measure(label="client: mean sent late (ms)", path="client.sent_late_ms.mean"),
    Measure(label="client: P99 sent late (ms)", path="client.sent_late_ms.p99"),
    Measure(label="client: P99 event loop lag (ms)", path="client.loop_lag_ms.p99"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure over the repetitions of a load."""

    value: float
    """The median."""
    noise: float | None
    """Half the range over the median; None where it was measured once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One measure of two files."""

    measure: Measure
    first: Figure
    second: Figure

    @property
    def ratio(self) -> float | None:
        """The second over the first; None over nothing."""
        return self.second.value / self.first.value if self.first.value else None

    @property
    def noise(self) -> float | None:
        """What the ratio may be off 1 by without a difference: both noises together."""
        if self.first.noise is None or self.second.noise is None:
            return None
        return self.first.noise + self.second.noise

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``other`` beyond the noise; ``same`` within it; empty where it is not known."""
        if self.ratio is None or self.noise is None:
            return ""
        if abs(self.ratio - 1) <= self.noise:
            return "same"
        if self.measure.more_is_better is None:
            return "other"
        return "better" if (self.ratio > 1) == self.measure.more_is_better else "worse"


def by_case(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each load, in the order of their first."""
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row["case"], []).append(row)
    return cases


def figure(rows: Sequence[Row], measure: Measure) -> Figure | None:
    """Return a measure over the repetitions of one load; None where none of them has it."""
    values = [value for row in rows if (value := _value(row, measure.path)) is not None]
    if not values:
        return None
    middle, half = median(values), (max(values) - min(values)) / 2
    noise = None if len(values) < 2 else half / abs(middle) if middle else 0.0
    return Figure(value=middle, noise=noise)


def compare(first: Iterable[Row], second: Iterable[Row]) -> dict[str, list[Comparison]]:
    """Return, for every load of both, the measures that both have. Raises ConfigError where no load is in both."""
    mine, theirs = by_case(first), by_case(second)
    common = [case for case in mine if case in theirs]
    if not common:
        details = {"found": f"{', '.join(mine)} | {', '.join(theirs)}", "options": "runs with the same loads"}
        raise ConfigError("the files have no load in common", details)
    return {
        case: [
            Comparison(measure=measure, first=one, second=other)
            for measure in MEASURES
            if (one := figure(mine[case], measure)) is not None and (other := figure(theirs[case], measure)) is not None
        ]
        for case in common
    }


def _value(row: Row, path: str) -> float | None:
    value: object = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) else None
