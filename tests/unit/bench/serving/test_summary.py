"""Figures over repetitions, comparisons with their noise, and the picture."""

from pathlib import Path

import pytest

from legato.bench.serving.load_plot import draw_loads, load_axis
from legato.bench.serving.summary import MEASURES, by_case, compare, figure
from legato.cli.bench_serve_tables import acceptance_table, failures_table, serving_table
from legato.errors import ConfigError

BY_PATH = {measure.path: measure for measure in MEASURES}


def row(case: str = "a", tpot: float = 10.0, rate: float | None = 1.0, **values: object) -> dict:
    latencies = {"mean": tpot, "median": tpot, "p99": 2 * tpot}
    server = {"acceptance": None, "shares": None, "prefix_hit_share": None, "preemptions": None}
    return {
        "case": case,
        "engine": "legato",
        "model": "m",
        "dataset": "random",
        "repetition": 0,
        "request_rate": rate,
        "max_concurrency": None,
        "output_tok_per_s": 1000 / tpot,
        "ttft_ms": latencies,
        "tpot_ms": latencies,
        "failures": {},
        "server": server,
    } | values


def test_a_figure_is_the_median_of_the_runs_with_half_their_range() -> None:
    found = figure([row(tpot=10.0), row(tpot=11.0), row(tpot=14.0)], BY_PATH["tpot_ms.median"])
    assert (found.value, found.noise) == (11.0, pytest.approx(2 / 11))
    assert figure([row()], BY_PATH["tpot_ms.median"]).noise is None
    assert figure([row()], BY_PATH["server.acceptance.length"]) is None
    assert figure([row(failed=0), row(failed=0)], BY_PATH["failed"]).noise == 0.0


@pytest.mark.parametrize(
    ("first", "second", "latency", "throughput"),
    [
        ((10.0, 10.4), (10.1, 10.5), "same", "same"),
        ((10.0, 10.4), (12.0, 12.4), "worse", "worse"),
        ((12.0, 12.4), (10.0, 10.4), "better", "better"),
        ((10.0,), (20.0,), "", ""),
    ],
)
def test_a_difference_counts_only_beyond_the_noise(first, second, latency: str, throughput: str) -> None:
    [comparisons] = compare([row(tpot=t) for t in first], [row(tpot=t) for t in second]).values()
    verdicts = {one.measure.path: one.verdict for one in comparisons}
    assert verdicts["tpot_ms.median"] == latency
    assert verdicts["output_tok_per_s"] == throughput
    [tpot] = [one for one in comparisons if one.measure.path == "tpot_ms.mean"]
    assert tpot.ratio == pytest.approx(sum(second) / sum(first))


def test_only_common_loads_are_compared() -> None:
    assert list(compare([row("a"), row("b")], [row("b"), row("c")])) == ["b"]
    with pytest.raises(ConfigError):
        compare([row("a")], [row("b")])


def test_rows_are_grouped_by_load_in_their_order() -> None:
    assert {case: len(runs) for case, runs in by_case([row("b"), row("a"), row("b")]).items()} == {"b": 2, "a": 1}


def test_the_table_has_a_column_per_load_and_leaves_out_what_nobody_measured() -> None:
    server = row()["server"] | {"acceptance": {"length": 2.5, "share": 0.5, "per_position": [0.9, 0.6], "drafts": 4}}
    rows = [row("a"), row("b", server=server, failures={"HTTP 503": 3})]
    table = serving_table(rows)
    assert [column.header for column in table.columns] == ["", "a", "b"]
    cells = dict(
        zip(
            map(str, table.columns[0].cells),
            zip(*(map(str, c.cells) for c in table.columns[1:]), strict=True),
            strict=True,
        )
    )
    assert cells["median TPOT (ms)"] == ("10.00", "10.00")
    assert cells["acceptance length"] == ("-", "2.500")
    assert "steps in full graphs" not in cells and "request goodput (1/s)" not in cells
    assert [str(cell) for cell in acceptance_table(rows).columns[1].cells] == ["90.0%"]
    assert acceptance_table([row()]).row_count == 0
    assert [str(cell) for cell in failures_table(rows).columns[3].cells] == ["HTTP 503"]


def test_the_axis_is_the_load_that_differs() -> None:
    assert load_axis([row(rate=1.0), row(rate=2.0)])[0] == "request_rate"
    assert load_axis([row(rate=None, max_concurrency=1), row(rate=None, max_concurrency=4)])[0] == "max_concurrency"


def test_a_picture_is_drawn_even_where_a_load_failed_wholly(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row("a"), row("a", tpot=12.0), row("b", rate=2.0, ttft_ms=None, tpot_ms=None), row("c", rate=None)]
    draw_loads(rows, tmp_path / "x" / "load.png")
    assert (tmp_path / "x" / "load.png").read_bytes().startswith(b"\x89PNG")
