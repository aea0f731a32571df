"""``legato verify`` and ``--trace`` as typed: exit status, what is named, and the files left behind."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from server_process import REAL, running_server
from tiny_engine import write_config
from typed_command import Ended, typed

from legato.attention.registry import BACKENDS
from legato.config.options import EngineOptions

Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Ended:
        return typed(monkeypatch, capsys, *arguments, columns=160)  # no cell of a table is folded

    return run


@pytest.fixture
def small(tiny_model: Path) -> list[str]:
    return [
        *("--model", str(tiny_model), "--device", "cpu", "--max-num-seqs", "4", "--max-num-batched-tokens", "32"),
        *("--graph-sizes", "2,4", "--kv-cache-memory-bytes", "1000000"),
    ]


def test_a_healthy_model_is_verified(run: Run, small: list[str]) -> None:
    ended = run("verify", *small, "--policy", "full_and_piecewise", "--max-tokens", "4")
    assert ended.code == 0, ended.out
    assert ended.out.splitlines()[-1] == "verified"
    assert "full_and_piecewise, overlap" in ended.out


def test_the_json_report_is_all_that_standard_output_has(run: Run, small: list[str], tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("one\n[5, 6, 7]\n")
    ended = run("verify", *small, "--policy", "piecewise", "--json", "--prompts", str(tmp_path / "prompts"))
    report = json.loads(ended.out)
    assert (ended.code, report["passed"], report["first"]) == (0, True, None)
    assert {engine["num_tokens"] for engine in report["engines"]} == {2 * 16}


@pytest.mark.parametrize(
    ("fault", "key", "layer"),
    [
        ("FrozenHostValueBackend", "target/full tokens=4 reqs=4 query_len=1 greedy", "layer 0"),
        ("WrongBatchKernelBackend", "target/full tokens=4 reqs=4 query_len=1 greedy", "layer 1"),
    ],
)
def test_a_planted_fault_ends_with_1_and_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, key: str, layer: str
) -> None:
    monkeypatch.setitem(BACKENDS, "faulty", f"planted_faults:{fault}")
    model = ["--model", str(write_config(tmp_path)), "--load-format", "dummy", "--device", "cpu", "--max-num-seqs", "4"]
    what = ["--attention-backend", "faulty", "--graph-sizes", "2,4", "--policy", "full_decode_only"]
    ended = run("verify", *model, *what, "--max-num-batched-tokens", "32", "--max-tokens", "4")
    assert ended.code == 1
    assert "not verified" in ended.out
    assert f"key {key}, {layer}, token 0" in " ".join(ended.out.split())


def test_verification_of_what_cannot_be_had_is_a_usage_error(run: Run, small: list[str]) -> None:
    assert run("verify", *small, "--prompts", "no such file").code == 2


def test_generate_leaves_a_trace(run: Run, small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    ended = run("generate", *small, "--trace", str(path), "--max-tokens", "3", "--ignore-eos", "--json", "one")
    assert ended.code == 0
    steps = [event for event in json.loads(path.read_text()) if event["name"] == "step"]
    assert [step["args"]["mode"] for step in steps] == ["eager", "full", "full"]
    assert steps[0]["args"]["reason"] == "disabled_by_user"


def test_bench_leaves_a_trace_with_a_track_for_each_policy(run: Run, small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sizes = ["--batch-size", "1", "--input-len", "4", "--output-len", "3", "--iterations", "1", "--warmup", "0"]
    ended = run("bench", "latency", *small, *sizes, "--mode", "none", "--mode", "full", "--trace", str(path))
    assert ended.code == 0
    steps = [event for event in json.loads(path.read_text()) if event["name"] == "step"]
    assert {(step["tid"], step["args"]["mode"]) for step in steps} == {(1, "eager"), (2, "full")}


def test_a_server_traces_while_it_runs(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    options = EngineOptions(model=str(tiny_model), max_num_seqs=2, max_num_batched_tokens=32, trace=str(path))
    with running_server(options, factory=REAL) as server:
        body = {"prompt": "one", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
        assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=30).status_code == 200
        steps = [event for event in json.loads(path.read_text()) if event["name"] == "step"]
        assert len(steps) >= 3
        assert all({"mode", "reason"} <= event["args"].keys() for event in steps)
