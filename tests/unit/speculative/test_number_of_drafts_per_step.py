"""Engines whose steps differ in the number of drafts: tokens stay those of plain decoding, graphs serve every step."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
import speculative_cases as cases
import tiny_engine
from drafts_at_random import at_random
from scripted_drafter import WitnessDrafter

from legato.device.recording import RecordingDevice
from legato.graphs.modes import Stage
from legato.runner import round_timing
from legato.runner.round_program import RoundProgram
from legato.scheduler.draft_chooser import DraftChooser
from legato.verify.reachability import batch_that_selects


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_engine.write_config(tmp_path_factory.mktemp("model"))


def build(folder: Path, method: str, most: int = 3, *, more: dict[str, object] | None = None, **changes: object):
    settings = {"num_speculative_tokens": "auto", "max_num_speculative_tokens": most} | (more or {})
    return cases.build(folder, method, most, more=settings, **changes)


@pytest.mark.parametrize(
    ("method", "policy", "overlap"),
    [
        ("scripted", "none", False),
        ("scripted", "full_decode_only", True),
        ("ngram", "full_decode_only", False),
        ("witness", "full_decode_only", True),
        ("witness", "piecewise", True),
        ("witness", "full_and_piecewise", False),
    ],
)
def test_tokens_are_those_of_plain_decoding_whatever_is_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str, policy: str, overlap: bool
) -> None:
    requests = cases.all_kinds()
    expected = tiny_engine.run(tiny_engine.build(folder), requests)
    cases.script(monkeypatch, cases.truth_of(requests, expected))
    core = build(folder, method, graph_policy=policy, overlap=overlap)
    chooser = at_random(core)
    cases.assert_equal(tiny_engine.run(core, requests), expected)
    assert set(chooser.taken) == {0, 1, 2, 3}


def test_every_step_of_decodes_is_replayed_whatever_is_chosen(folder: Path) -> None:
    core = build(folder, "ngram", graph_policy="full_and_piecewise")
    at_random(core)
    tiny_engine.run(core, [tiny_engine.request(f"r{i}", [i + 1] * 5, max_tokens=30) for i in range(4)])
    assert set(core.stats().graph_steps) == {"target full", "target piecewise", "draft full"}
    assert not core.stats().graph_fallbacks.get("target batch_too_large")


def test_no_state_of_the_witness_is_missing_where_drafts_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter with layers sees every token of a step that drafts, however many the step before had."""
    requests = cases.all_kinds()
    cases.script(monkeypatch, [])
    core = build(folder, "witness")
    at_random(core)
    tiny_engine.run(core, requests)
    program = core.runner.program
    assert isinstance(program, RoundProgram) and isinstance(program.drafter, WitnessDrafter)
    assert int(program.drafter.num_seen) > 0
    assert int(program.drafter.num_wrong) == 0


def test_costs_are_measured_at_start_and_leave_nothing_behind(folder: Path) -> None:
    core = build(folder, "ngram")
    costs = core._scheduler.chooser.costs
    assert costs.sizes == (1, 2, 4) and costs.num_drafts == (0, 1, 2, 3)
    assert all(ms > 0 for row in costs.ms for ms in row)
    assert not any(tensor.any() for tensor in core.runner.program.state.tensors().values())
    assert core.stats().graph_steps == {}


def test_the_choice_and_what_it_brought_are_in_the_stats(folder: Path) -> None:
    core = build(folder, "ngram")
    assert core.stats().spec_decode_speed_up is None
    core._scheduler.chooser.pinned = 2
    tiny_engine.run(core, [tiny_engine.request("r", [1, 2, 3] * 4, max_tokens=20)])
    stats = core.stats()
    assert stats.spec_decode_num_speculative_tokens == 2
    assert stats.spec_decode_speed_up > 0
    assert stats.spec_decode_draft_tokens == 2 * stats.spec_decode_drafts


def test_what_pays_is_chosen_and_what_does_not_is_given_up(folder: Path) -> None:
    """With synthetic acceptance and costs like a GPU's the engine comes to the number that is best."""
    synthetic = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3.8}
    core = build(folder, "ngram", more=synthetic)
    costs = core._scheduler.chooser.costs
    flat = tuple(tuple(4.0 + 0.8 * k for k in costs.num_drafts) for _ in costs.sizes)
    core._scheduler.chooser = DraftChooser(type(costs)(sizes=costs.sizes, num_drafts=costs.num_drafts, ms=flat))
    tiny_engine.run(core, [tiny_engine.request(f"r{i}", [1, 2], max_tokens=50) for i in range(8)])
    assert core.stats().spec_decode_num_speculative_tokens == 3
    assert core.stats().spec_decode_speed_up > 1.8
    core.runner.program.synthetic.set_rates((0.01, 0.01, 0.01))
    tiny_engine.run(core, [tiny_engine.request(f"s{i}", [1, 2], max_tokens=50, seed=i) for i in range(24)])
    assert core.stats().spec_decode_num_speculative_tokens <= 1


def test_a_number_is_given_to_every_decode_of_a_step(folder: Path) -> None:
    core = build(folder, "ngram", most=5)
    chooser = at_random(core)
    tiny_engine.run(core, [tiny_engine.request(f"r{i}", [i + 1] * 5, max_tokens=20) for i in range(3)])
    stats = core.stats()
    assert stats.spec_decode_draft_tokens <= 3 * sum(chooser.taken)


def test_costs_are_measured_within_sequences_that_are_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_timing, "_MS_EACH", 1e9)  # the most steps, however fast the machine
    more = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 6.0}
    assert build(folder, "ngram", most=5, more=more, max_model_len=24, graph_policy="none").has_work is False


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ([9.0, 9.0, 9.0, 7.0, 5.05, 5.0], 5.0),  # two to warm up; the fourth series agrees with the third
        ([9.0, 9.0, 5.05, 5.0], 5.0),
        ([9.0, 9.0, *(9.0 * 0.9**number for number in range(8))], 9.0 * 0.9**7),  # none agrees: the last there may be
    ],
)
def test_a_series_counts_once_another_one_has_nearly_said_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, told: list[float], cost: float
) -> None:
    core = build(folder, "ngram", most=2, max_num_seqs=1, graph_policy="none")
    monkeypatch.setattr(round_timing, "_MS_EACH", 0.0)  # one step in a series
    clock = cycle(told)

    class Clocked(RecordingDevice):
        def elapsed_ms(self, work: Callable[[], None]) -> float:
            work()
            return next(clock)

    costs = round_timing.measure_round_costs(Clocked(), core.runner, core.planner, (0, 1, 2))
    assert costs.ms == (pytest.approx((cost, cost, cost)),)


@pytest.mark.parametrize("method", ["ngram", "witness"])
def test_every_graph_of_every_number_is_reached(folder: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    cases.script(monkeypatch, [])
    core = build(folder, method, graph_policy="full_and_piecewise", max_num_seqs=2)
    catalog = core.runner.graphs.catalog
    assert {key.num_drafts for key in catalog.keys if key.stage is Stage.ROUND} == {0, 1, 2, 3}
    assert all(batch_that_selects(key, core.planner, catalog) is not None for key in catalog.keys)
