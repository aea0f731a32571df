"""How a start is split into parts, from what a child tells and from its trace."""

import json
from pathlib import Path

import pytest

from legato.bench.startup import Started, read_spans, split
from legato.bench.subject import Subject
from legato.config.environment import with_fresh_caches

TOLD = Started(
    subject=Subject(engine="e", version="1", model="m", dtype="float32"),
    imported=103.0,
    built=113.0,
    first_token=113.5,
    max_num_seqs=2,
)


def test_the_parts_of_a_start_add_up_to_all_of_it() -> None:
    phases = split(100.0, TOLD, {"weights": 4.0, "capture": 2.0})
    assert phases == {"import": 3.0, "weights": 4.0, "capture": 2.0, "rest of build": 4.0, "first token": 0.5}


def test_a_peer_without_a_trace_has_one_part_between_import_and_first_token() -> None:
    assert split(100.0, TOLD, {}) == {"import": 3.0, "build": 10.0, "first token": 0.5}


def test_spans_of_one_kind_are_added_and_those_of_steps_are_not_counted(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    spans = [("weights", 2e6), ("capture", 1e6), ("capture", 5e5), ("replay", 9e6)]
    trace.write_text(json.dumps([{"name": "thread_name", "ph": "M"}, *({"name": n, "dur": d} for n, d in spans)]))
    assert read_spans(trace) == pytest.approx({"weights": 2.0, "capture": 1.5})


def test_fresh_caches_are_folders_of_their_own_and_the_rest_of_the_environment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/caches/triton")
    monkeypatch.setenv("ANYTHING", "else")
    cold = with_fresh_caches(tmp_path)
    assert cold["TRITON_CACHE_DIR"] == str(tmp_path / "triton_cache_dir")
    assert cold["ANYTHING"] == "else"
    assert with_fresh_caches(None)["TRITON_CACHE_DIR"] == "/caches/triton"
