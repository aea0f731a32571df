"""Drafts change when tokens come, and never which: every drafter, policy and width, over everything at once."""

from pathlib import Path

import pytest
import speculative_cases as cases
import tiny_engine

POLICIES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_engine.write_config(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, tiny_engine.Result]:
    """What plain decoding gives, eagerly, one request after another's step."""
    return tiny_engine.run(tiny_engine.build(folder, graph_policy="none"), cases.all_kinds())


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gives_the_tokens_of_plain_decoding(
    folder: Path,
    expected: dict[str, tiny_engine.Result],
    policy: str,
    overlap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases.script(monkeypatch, cases.truth_of(cases.all_kinds(), expected))
    core = cases.build(folder, "scripted", 3, graph_policy=policy, overlap=overlap)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert not core.dropped
    assert cases.mean_accepted(core) > 0.5


@pytest.mark.parametrize("num_drafts", range(1, 9))
def test_every_width_gives_the_tokens_of_plain_decoding(
    folder: Path, expected: dict[str, tiny_engine.Result], num_drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = cases.truth_of(cases.all_kinds(), expected)
    cases.script(monkeypatch, truth, error_period=4 + num_drafts)
    policy = POLICIES[num_drafts % len(POLICIES)]
    core = cases.build(folder, "scripted", num_drafts, graph_policy=policy, overlap=num_drafts % 2 == 0)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert cases.mean_accepted(core) > 0.4 * min(num_drafts, 4)


@pytest.mark.parametrize(("error_period", "least", "most"), [(1, 0.0, 0.1), (2, 0.2, 0.8), (10_000, 2.0, 4.0)])
def test_drafters_of_any_quality_give_the_tokens_of_plain_decoding(
    folder: Path,
    expected: dict[str, tiny_engine.Result],
    error_period: int,
    least: float,
    most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases.script(monkeypatch, cases.truth_of(cases.all_kinds(), expected), error_period=error_period)
    core = cases.build(folder, "scripted", 4, overlap=True)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert least <= cases.mean_accepted(core) <= most


@pytest.mark.parametrize("policy", POLICIES)
def test_prompt_lookup_gives_the_tokens_of_plain_decoding(
    folder: Path, expected: dict[str, tiny_engine.Result], policy: str
) -> None:
    core = cases.build(folder, "ngram", 4, graph_policy=policy)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert cases.mean_accepted(core) > 0.05


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("overlap", [False, True])
def test_what_a_drafter_is_shown_is_the_token_before_the_next_one(
    folder: Path,
    expected: dict[str, tiny_engine.Result],
    policy: str,
    overlap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases.script(monkeypatch, cases.truth_of(cases.all_kinds(), expected))
    core = cases.build(folder, "witness", 2, graph_policy=policy, overlap=overlap)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert not core.dropped
    drafter = core.runner.program.drafter
    assert drafter.num_seen.item() > 100
    assert drafter.num_wrong.item() == 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("method", ["scripted", "ngram"])
def test_preemption_in_the_middle_changes_no_token(
    folder: Path,
    expected: dict[str, tiny_engine.Result],
    method: str,
    overlap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases.script(monkeypatch, cases.truth_of(cases.all_kinds(), expected))
    pool = tiny_engine.kv_bytes(num_blocks=20, block_size=4)
    core = cases.build(folder, method, 3, overlap=overlap, kv_cache_memory_bytes=pool)
    cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert core.stats().preemptions > 0
    assert core.stats().kv_blocks_used == 0


def test_prompts_cut_in_chunks_and_prefixes_found_in_the_cache_change_no_token(
    folder: Path, expected: dict[str, tiny_engine.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.script(monkeypatch, cases.truth_of(cases.all_kinds(), expected))
    core = cases.build(folder, "witness", 3, max_num_batched_tokens=16, overlap=True)
    for _ in range(2):
        cases.assert_equal(tiny_engine.run(core, cases.all_kinds()), expected)
    assert core.stats().prefix_cache_hits > 0
    assert core.runner.program.drafter.num_wrong.item() == 0


def test_requests_that_reach_the_longest_sequence_end_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [
        tiny_engine.request(f"r{length}", [length] * length, max_tokens=1000, arrival=float(length))
        for length in (3, 58, 61, 63)
    ]
    alone = tiny_engine.run(tiny_engine.build(folder, graph_policy="none"), requests)
    cases.script(monkeypatch, cases.truth_of(requests, alone), error_period=10_000)
    for overlap in (False, True):
        core = cases.build(folder, "scripted", 8, overlap=overlap)
        cases.assert_equal(tiny_engine.run(core, requests), alone)
    assert [len(alone[each.request_id].token_ids) for each in requests] == [61, 6, 3, 1]
