"""The sweep over acceptance, batch and drafts, on a tiny engine; and how rows with drafts are named."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_engine

from legato.bench import legato_contestant
from legato.bench.latency import Workload, measure
from legato.bench.legato_contestant import LegatoContestant
from legato.bench.speculation import Sweep, case_of, measure_speculation
from legato.bench.speculation_plot import draw_speculation
from legato.bench.vllm_peer import peer_speculation
from legato.engine.speculative_options import speculative_request
from legato.errors import ConfigError


def typed(**settings: object) -> str:
    return json.dumps({"method": "ngram", "num_speculative_tokens": 3} | settings)


SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.8}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LegatoContestant:
    folder = tiny_engine.write_config(tmp_path_factory.mktemp("model"))
    config = typed(num_speculative_tokens="auto", max_num_speculative_tokens=3, **SYNTHETIC)
    return LegatoContestant("legato", tiny_engine.options(folder, max_num_seqs=2, speculative_config=config))


@pytest.mark.parametrize(
    ("settings", "backend", "case"),
    [
        (SYNTHETIC, None, "ngram-k3-a2.8"),
        (SYNTHETIC, "flashinfer", "ngram-flashinfer-k3-a2.8"),
        ({}, None, "ngram-k3"),
        ({"num_speculative_tokens": "auto"}, None, "ngram-kauto"),
    ],
)
def test_a_row_is_named_by_drafter_backend_drafts_and_acceptance(
    settings: dict[str, object], backend: str | None, case: str
) -> None:
    config = speculative_request(typed(**settings))
    assert config is not None
    assert case_of(config, backend) == case


SWEEP = Sweep(
    lengths=(2.5,),
    batch_sizes=(2,),
    numbers=(3,),
    input_len=6,
    output_len=20,
    turn_tokens=30,
    turns=1,
    warmup=0,
    vocab_size=tiny_engine.VOCAB_SIZE,
)


def test_a_sweep_has_a_row_for_every_kind_and_the_choice_takes_its_turn(
    engine: LegatoContestant, tmp_path: Path
) -> None:
    config = engine.core.config.speculative
    assert config is not None
    sweep = replace(SWEEP, lengths=(1.0, 3.5), batch_sizes=(1, 2), numbers=(1, 3))
    told: list[int] = []
    rows = measure_speculation(engine, config, sweep, lambda done, _: told.append(done))
    assert told == list(range(sweep.num_turns))
    assert [row.num_speculative_tokens for row in rows] == [0, 1, 3, "auto"] * 4
    by_case = {row.case: row for row in rows}
    plain, never, often = (by_case[f"ngram-a{end}-b2"] for end in ("3.5-k0", "1-k3", "3.5-k3"))
    assert plain.over_plain == 1.0 and plain.acceptance_length is None
    assert never.acceptance_length == 1.0
    assert often.acceptance_length is not None and often.acceptance_length > 2.5
    assert [by_case[f"ngram-a1-k3-b{size}"].output_len for size in (1, 2)] == [30, 20]
    draw_speculation(rows, tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.svg").stat().st_size > 1000


def test_in_a_turn_chance_is_the_same_whatever_came_before(engine: LegatoContestant) -> None:
    config = engine.core.config.speculative
    assert config is not None

    def acceptance(**changes: object) -> float | None:
        rows = measure_speculation(engine, config, replace(SWEEP, **changes), lambda *_: None)
        return next(row.acceptance_length for row in rows if row.num_speculative_tokens == 3)

    assert acceptance() == acceptance()
    assert acceptance(seed=5) != acceptance()


def test_the_time_of_a_whole_batch_ends_where_its_first_request_does(
    engine: LegatoContestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def num_steps() -> float:
        return float(sum(n for name, n in engine.core.stats().graph_steps.items() if name[:6] in ("target", "round ")))

    monkeypatch.setattr(legato_contestant, "time", SimpleNamespace(perf_counter=num_steps, monotonic=lambda: 0.0))
    engine.core.set_synthetic_acceptance((0.6, 0.6, 0.6))
    engine.seed_from(0)
    prompts = [tuple(range(3, 9)), tuple(range(40, 46))]
    engine.core.pin_drafts(0)
    plain = engine.generate(prompts, 20)
    assert plain.together_ms == plain.tpot_ms == 1000.0  # a step brings each a token
    engine.core.pin_drafts(3)
    drafted = engine.generate(prompts, 20)
    assert drafted.together_ms is not None
    assert 250 <= drafted.together_ms < drafted.tpot_ms
    assert engine.generate(prompts, 1).together_ms is None


def test_a_latency_row_tells_what_drafts_brought(engine: LegatoContestant) -> None:
    engine.core.set_synthetic_acceptance((0.9, 0.9, 0.9))
    engine.core.pin_drafts(3)
    workload = Workload(
        batch_sizes=(2,), input_len=6, output_len=40, turns=2, warmup=0, vocab_size=tiny_engine.VOCAB_SIZE
    )
    [row] = measure([engine], workload)
    engine.core.pin_drafts(None)
    assert row.acceptance_length is not None and 2 < row.acceptance_length <= 4
    assert len(row.acceptance_rates) == 3
    assert list(row.acceptance_rates) == sorted(row.acceptance_rates, reverse=True)
    assert row.round_ms is not None and row.round_ms > row.tpot_ms


def test_the_peer_is_given_the_same_drafter() -> None:
    got = peer_speculation(typed(model="m", load_format="dummy", **SYNTHETIC), "FLASHINFER")
    assert got == {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "model": "m",
            "attention_backend": "FLASHINFER",
            **SYNTHETIC,
        }
    }
    assert peer_speculation(None, "FLASHINFER") == {}


def test_the_peer_has_no_choice_of_drafts() -> None:
    with pytest.raises(ConfigError, match="one number of drafts"):
        peer_speculation(typed(num_speculative_tokens="auto"), None)
