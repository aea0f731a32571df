"""Faults that graphs are known for, in the graphs of rounds: each is caught before it serves, in every stage."""

from collections import Counter
from pathlib import Path

import planted_faults
import pytest
import speculative_cases as cases
import tiny_engine
import torch

from legato.attention.registry import BACKENDS
from legato.errors import GraphPolicyError
from legato.observability.reasons import Reason
from legato.runner.buffers import InputBuffer
from legato.runner.drafter import RoundRequests

SIZES = {"graph_sizes": (4, 8, 16, 32), "graph_policy": "full_and_piecewise"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cases.script(monkeypatch, [])
    return tiny_engine.write_config(tmp_path)


def requests() -> list:
    return [tiny_engine.request(f"r{index}", [index, 7, 9] * 3, max_tokens=8) for index in range(4)]


def plain(folder: Path) -> dict[str, list[int]]:
    return tiny_engine.tokens(tiny_engine.build(folder, graph_policy="none"), requests())


def dropped(core) -> Counter[tuple[str, str]]:
    return Counter((str(drop.key.stage), str(drop.reason)) for drop in core.dropped)


def test_without_a_fault_no_stage_loses_a_graph_in_strict_mode(folder: Path) -> None:
    core = cases.build(folder, "witness", 3, graph_strict=True, **SIZES)
    assert dropped(core) == {}
    assert {str(key.stage) for key in core.runner.graphs.catalog.keys} == {"round", "target", "extend", "draft"}
    tiny_engine.run(core, requests())
    assert not [record for record in core.step_log.recent if record.mode == "eager"]


def test_padding_that_is_not_rewritten_fails_the_canary_of_every_stage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InputBuffer, "fill", planted_faults.fill_without_padding)
    core = cases.build(folder, "witness", 3, **SIZES)
    stages = {stage for stage, reason in dropped(core) if reason == Reason.CANARY_FAILED}
    assert {"round", "draft"} <= stages
    assert not [key for key in core.runner.graphs.catalog.keys if key.stage == "round" and key.num_reqs > 1]


@pytest.mark.parametrize("name", ["FrozenHostValueBackend", "RebuiltBlockTableBackend", "HostReadingBackend"])
def test_a_backend_that_freezes_or_asks_the_host_is_kept_out_of_rounds(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = getattr(planted_faults, name)
    monkeypatch.setitem(BACKENDS, backend.name, f"planted_faults:{name}")
    faulty = {"attention_backend": backend.name, **SIZES}
    expected = tiny_engine.tokens(cases.build(folder, "ngram", 3, **(faulty | {"graph_policy": "none"})), requests())
    core = cases.build(folder, "ngram", 3, **faulty)
    assert {stage for stage, _ in dropped(core)} == {"round", "target"}
    assert not [key for key in core.runner.graphs.catalog.keys if key.stage == "round"]
    assert tiny_engine.tokens(core, requests()) == expected
    with pytest.raises(GraphPolicyError):
        cases.build(folder, "ngram", 3, graph_strict=True, **faulty)


def test_a_drafter_that_asks_the_host_runs_outside_graphs_and_changes_no_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import scripted_drafter

    propose = scripted_drafter.ScriptedDrafter.propose

    def asking(self: scripted_drafter.ScriptedDrafter, given: RoundRequests) -> torch.Tensor:
        assert given.next_tokens.max().item() >= 0
        return propose(self, given)

    monkeypatch.setattr(scripted_drafter.ScriptedDrafter, "propose", asking)
    core = cases.build(folder, "scripted", 3, **SIZES)
    assert {stage for stage, reason in dropped(core) if reason == Reason.CAPTURE_FAILED} == {"round", "draft"}
    assert tiny_engine.tokens(core, requests()) == plain(folder)
    drafting = {(record.mode, record.reason) for record in core.step_log.recent if record.stage == "draft"}
    assert drafting == {("eager", Reason.CAPTURE_FAILED)}


def test_a_moved_buffer_of_drafts_makes_rounds_stale(folder: Path) -> None:
    core = cases.build(folder, "ngram", 3, **SIZES)
    state = core.runner.program.state
    state.drafts = state.drafts.clone()
    assert tiny_engine.tokens(core, requests()) == plain(folder)
    assert not core.runner.graphs.catalog.keys
