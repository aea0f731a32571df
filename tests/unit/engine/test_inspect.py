import json
from pathlib import Path

import pytest
from tiny_engine import build, options, write_config

from legato.attention.registry import BACKENDS
from legato.engine.inspect import backend_report, graph_report, plan_report
from legato.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model without weights: nothing here may ask for them."""
    return write_config(tmp_path)


def test_the_planned_graphs_are_the_ones_an_engine_captures(folder: Path) -> None:
    changes = {"graph_policy": "full_and_piecewise", "graph_sizes": (1, 4, 16)}
    planned = graph_report(options(folder, **changes))
    captured = build(folder, **changes).graph_report()
    unknown = {"bytes": None, "nodes": None, "capture_ms": None}
    assert planned["catalog"] == [entry | unknown for entry in captured["catalog"]]
    assert all(entry["nodes"] > 0 and entry["capture_ms"] > 0 for entry in captured["catalog"])
    assert all(entry["bytes"] > 0 for entry in captured["catalog"] if entry["mode"] == "piecewise")
    for name in ("policy", "backend", "mixed", "uniform", "decisions", "dropped"):
        assert planned[name] == captured[name]


def test_a_report_is_json_with_the_promised_fields(folder: Path) -> None:
    report = json.loads(json.dumps(graph_report(options(folder))))
    assert report["policy"] == "full_decode_only"
    assert (report["mixed"], report["uniform"]) == ("eager", {"1": "full"})
    promised = {"stage", "mode", "num_tokens", "num_reqs", "query_len", "backend", "bytes", "capture_ms"}
    assert all(promised <= entry.keys() for entry in report["catalog"])


def test_every_backend_is_reported_with_a_level_and_a_reason(folder: Path) -> None:
    report = backend_report(options(folder))
    assert [entry["name"] for entry in report] == list(BACKENDS)
    assert all(entry["reason"] for entry in report)
    assert [entry["name"] for entry in report if entry["selected"]] == ["torch_sdpa"]
    assert all(entry["level"] != "unavailable" for entry in report if entry["selected"])


def test_a_pair_of_backends_is_reported_behind_those_it_is_made_of(folder: Path) -> None:
    *registered, pair = backend_report(options(folder, attention_backend="torch_sdpa+reference"))
    assert [entry["name"] for entry in registered] == list(BACKENDS)
    assert not any(entry["selected"] for entry in registered)
    assert (pair["name"], pair["level"], pair["selected"]) == ("torch_sdpa+reference", "ALWAYS", True)


def test_decodes_are_planned_on_a_full_graph(folder: Path) -> None:
    plan = plan_report(options(folder), query_lens=[1, 1, 1])
    assert (plan["mode"], plan["num_reqs"], plan["num_reqs_padded"]) == ("full", 3, 4)
    assert (plan["reason"], plan["query_len"]) == (None, 1)


def test_a_prompt_beside_a_decode_is_planned_as_a_mixed_batch(folder: Path) -> None:
    plan = plan_report(options(folder, graph_policy="full_and_piecewise"), query_lens=[1, 12])
    assert (plan["requested"], plan["mode"], plan["reason"]) == ("piecewise", "piecewise", "disabled_by_user")
    assert (plan["num_tokens"], plan["num_tokens_padded"]) == (13, 16)
    assert json.loads(json.dumps(plan)) == plan


def test_what_a_drafter_does_after_the_target_is_planned_too(folder: Path) -> None:
    drafting = {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}'}
    engine = options(folder, graph_policy="full_and_piecewise", **drafting)
    plan = plan_report(engine, query_lens=[4, 4])
    assert (plan["query_len"], plan["sample_in_graph"]) == (4, True)
    assert plan["draft stage"] == "full, in the graph of the round"
    plan = plan_report(engine, query_lens=[4, 9])
    assert (plan["mode"], plan["query_len"]) == ("piecewise", None)
    assert plan["draft stage"].startswith("draft/full tokens=2")


@pytest.mark.parametrize("query_lens", [[], [0], [-1, 2], [1] * 5, [33], [20, 20]])
def test_a_batch_that_no_step_has_is_refused(folder: Path, query_lens: list[int]) -> None:
    with pytest.raises(ConfigError, match="no step") as caught:
        plan_report(options(folder), query_lens=query_lens)
    assert caught.value.details["limit"]
