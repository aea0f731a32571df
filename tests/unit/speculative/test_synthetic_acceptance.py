"""Benchmarks without a trained drafter: drafts stand at the stated rates in every mode, and the same ones each time."""

from pathlib import Path

import pytest
import speculative_cases as cases
import tiny_engine

from legato.flow.request import Request


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_engine.write_config(tmp_path_factory.mktemp("model"), max_position_embeddings=1024)


def requests() -> list[Request]:
    return [tiny_engine.request(f"r{index}", [index, 1, 2], max_tokens=500, seed=index) for index in range(8)]


def build(folder: Path, policy: str, **more: object):
    return cases.build(
        folder,
        "ngram",
        3,
        more={"rejection_sample_method": "synthetic", **more},
        graph_policy=policy,
        max_model_len=512,
        graph_sizes=(16, 32),
        kv_cache_memory_bytes=tiny_engine.kv_bytes(num_blocks=1200, block_size=4),
    )


@pytest.mark.parametrize("length", [1.0, 2.8, 4.0])
def test_rounds_have_the_stated_length_in_the_mean(folder: Path, length: float) -> None:
    core = build(folder, "full_decode_only", synthetic_acceptance_length=length)
    results = tiny_engine.run(core, requests())
    assert [len(result.token_ids) for result in results.values()] == [500] * 8
    stats = core.stats()
    assert stats.spec_decode_drafts > 900
    assert stats.acceptance_length == pytest.approx(length, abs=0.12)


def test_rates_of_positions_are_kept(folder: Path) -> None:
    core = build(folder, "full_decode_only", synthetic_acceptance_rates=[0.9, 0.5, 0.0])
    tiny_engine.run(core, requests())
    assert core.stats().acceptance_rates == pytest.approx((0.9, 0.5, 0.0), abs=0.05)


def test_the_same_drafts_stand_in_every_mode(folder: Path) -> None:
    given = {}
    for policy in ("none", "piecewise", "full"):
        core = build(folder, policy, synthetic_acceptance_length=2.5)
        tokens = tiny_engine.tokens(core, requests()[:3])
        given[policy] = tokens, core.stats().spec_decode_accepted_per_position
    assert given["piecewise"] == given["full"] == given["none"]
