"""``legato bench serve`` as typed: its own server, one that runs, sweeps, files, comparisons and what is refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from server_process import KEY, Server, eventually
from typed_command import Ended, typed

from legato.bench.serving.counters import read_counters
from legato.bench.serving.measure import ServingRow
from legato.results.rows_file import read_rows_file

Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Ended:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return typed(monkeypatch, capsys, "bench", "serve", *arguments, columns=200)

    return run


def test_a_server_of_its_own_is_measured_and_counts_its_graphs(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    ended = run(
        *("--model", str(tiny_model), "--device", "cpu", "--max-num-seqs", "2", "--kv-cache-memory-bytes", "1000000"),
        *("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}'),
        *("--num-prompts", "4", "--input-len", "24", "--output-len", "12", "--ignore-eos", "--max-concurrency", "2"),
        *("--goodput", "ttft:60000", "tpot:60000", "--save", str(tmp_path / "a.json"), "--json"),
        *("--profile", str(tmp_path / "profiles")),
    )
    assert ended.code == 0, ended.err
    [row] = json.loads(ended.out)
    assert (row["completed"], row["failed"], row["input_tokens"], row["output_tokens"]) == (4, 0, 96, 48)
    assert (row["engine"], row["model"], row["peak_concurrency"]) == ("legato", tiny_model.name, 2)
    assert row["tokens_counted_by"] == "server"
    assert row["goodput"]["share"] == 1.0
    shares = row["server"]["shares"]
    assert shares["full"] > 0.2 and shares["full"] + shares["piecewise"] + shares["eager"] == pytest.approx(1)
    assert row["ttft_ms"]["median"] <= row["e2e_ms"]["median"]
    [profile] = (tmp_path / "profiles").iterdir()
    assert json.loads(profile.read_bytes())["traceEvents"]
    file = read_rows_file(tmp_path / "a.json")
    assert json.loads(msgspec.json.encode(msgspec.convert(file.rows[0], ServingRow))) == row
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert not any("legato.cli.main" in Path(f"/proc/{child}/cmdline").read_text() for child in children)


def test_a_running_server_is_swept_over_loads_in_words_and_chat(
    run: Run, server: Server, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    common = ["--base-url", server.url, "--tokenizer", str(tiny_model), "--repeat", "2", "--output-len", "8"]
    asked = [*common, "--request-rate", "50,200", "--num-prompts", "5,8", "--input-len", "20", "--endpoint", "chat"]
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    first = run(*asked, "--save", files[0], "--plot", str(tmp_path / "load.png"))
    second = run(*asked, "--save", files[1], "--label", "other")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "median TPOT (ms)" in first.out and "rate=200" in first.out and "client: P99 sent late (ms)" in first.out
    rows = read_rows_file(Path(files[0])).rows
    assert [(row["request_rate"], row["completed"]) for row in rows] == [(50.0, 5), (50.0, 5), (200.0, 8), (200.0, 8)]
    assert (tmp_path / "load.png").stat().st_size > 1000
    compared = run("--compare", *files)
    assert compared.code == 0
    for text in ("a (server)", "b (other)", "ratio", "noise", "random-20/8 rate=50", "random-20/8 rate=200"):
        assert text in compared.out, text


def test_prompts_of_a_file_are_asked_and_refusals_are_told(run: Run, narrow_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": [5 + n], "output_tokens": 4}) for n in range(12)))
    asked = ["--base-url", narrow_server.url, "--dataset", "custom", "--dataset-path", str(path), "--num-prompts", "12"]
    # The server holds four requests: the others of twelve at once are refused.
    ended = run(*asked, "--api-key", KEY, "--warmup", "0")
    assert ended.code == 0, ended.err
    assert "Failed requests" in ended.out and "HTTP 503" in ended.out
    assert "custom rate=inf" in ended.out
    refused = run(*asked)
    assert (refused.code, "401" in refused.err) == (2, True)
    wrong_key = run(*asked, "--served-model-name", "tiny", "--api-key", "wrong", "--json")
    [row] = json.loads(wrong_key.out)
    assert row["completed"] == 0 and sum(row["failures"].values()) == 12
    assert all("401" in reason for reason in row["failures"])


def test_ctrl_c_prints_what_there_is(server: Server) -> None:
    command = [
        sys.executable,
        "-m",
        "legato.cli.main",
        "bench",
        "serve",
        "--base-url",
        server.url,
        "--dataset",
        "custom",
    ]
    arguments = ["--dataset-path", "/dev/stdin", "--request-rate", "4", "--num-prompts", "10000", "--json"]
    before = read_counters(server.url, None)
    process = subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    with process.stdin as prompts:
        prompts.write('{"prompt": [5], "output_tokens": 3}\n')

    def four_have_ended() -> bool:
        return read_counters(server.url, None).since(before, "generation_tokens") >= 12

    try:
        assert eventually(four_have_ended, within=60)
        process.send_signal(signal.SIGINT)
        process.stdin = None
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    [row] = json.loads(out)
    assert row["completed"] > 0 and row["completed"] + row["failed"] + row["unfinished"] == 10000


@pytest.mark.parametrize(
    "arguments",
    [
        ("--request-rate", "0"),
        ("--num-prompts", "0"),
        ("--num-prompts", "1,2"),
        ("--repeat", "0"),
        ("--input-len", "0"),
        ("--range-ratio", "1"),
        ("--burstiness", "x"),
        ("--ramp-up", "linear:1"),
        ("--ramp-up", "linear:1:2", "--request-rate", "3"),
        ("--goodput", "ttft"),
        ("ttft:200",),
        ("--dataset", "sharegpt"),
        ("--dataset", "custom", "--dataset-path", "no such file"),
        ("--endpoint", "chat", "--random-input", "ids"),
        ("--base-url", "http://127.0.0.1:1"),
        ("--base-url", "http://127.0.0.1:1", "--profile", "profiles"),
        ("--base-url", "ftp://x"),
        ("--api-key", "k"),
        ("--compare", "no.json", "such.json"),
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, ""), ended
    assert "Error" in ended.err


def test_a_server_that_cannot_start_says_why(run: Run, tmp_path: Path) -> None:
    ended = run("--model", str(tmp_path / "no-model"), "--num-prompts", "1")
    assert ended.code != 0
    assert "no-model" in ended.err
