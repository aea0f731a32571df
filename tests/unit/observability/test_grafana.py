"""The Grafana dashboard asks for metrics that exist, with labels that they have, and shows every one of them."""

import json
import re
from pathlib import Path

import pytest

from legato.observability.metrics import Metrics
from legato.observability.request_timing import RequestTiming
from legato.observability.stats import EngineStats

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "legato.json"
BOARD = json.loads(DASHBOARD.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SUFFIXES = r"_(bucket|sum|count)$"


@pytest.fixture(scope="module")
def exported():
    """Sample name -> its labels, of a server that has done a little of everything."""
    metrics = Metrics()
    metrics.observe(
        RequestTiming(
            request_id="a",
            index=0,
            num_prompt_tokens=1,
            num_output_tokens=2,
            arrival=0.0,
            first_token=1.0,
            finished=2.0,
            inter_token_s=(1.0,),
        )
    )
    metrics.request_success.labels("stop").inc()
    metrics.connection_dropped("slow_reader")
    stats = EngineStats(
        graph_steps={"target full": 1},
        graph_fallbacks={"target batch_too_large": 1},
        spec_decode_accepted_per_position=(1,),
    )
    text = metrics.render(stats).decode()
    samples = re.findall(r"^(legato:\w+)(?:\{(.*?)\})? ", text, re.MULTILINE)
    return {name: set(re.findall(r"(\w+)=", labels)) for name, labels in samples}


def test_every_metric_that_the_dashboard_asks_for_is_exported(exported):
    asked = {name for query in QUERIES for name in re.findall(r"legato:\w+", query)}
    assert asked and asked <= set(exported)
    variables = {name for each in BOARD["templating"]["list"] for name in re.findall(r"legato:\w+", str(each["query"]))}
    assert variables <= set(exported)


def test_every_exported_metric_is_on_the_dashboard(exported):
    shown = " ".join(QUERIES)
    names = {re.sub(SUFFIXES, "", name) for name in exported if not name.endswith("_created")}
    assert {name for name in names if name not in shown} == set()


def test_a_query_groups_by_labels_that_its_metric_has(exported):
    for query in QUERIES:
        for labels, name in re.findall(r"sum by \(([\w, ]+)\) \(rate\((legato:\w+)", query):
            assert set(labels.split(", ")) <= exported[name], query


def test_panels_do_not_overlap_and_have_ids_of_their_own():
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    cells = [
        (column, line)
        for panel in BOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(column for column, _ in cells) < 24
