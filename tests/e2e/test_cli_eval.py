"""``legato eval gsm8k`` as typed: in process, under every policy, over backends that disagree, and of a server."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import KEY, REAL, running_server
from typed_command import Ended, typed

from legato.attention.registry import BACKENDS
from legato.config.options import EngineOptions
from legato.graphs.modes import GraphPolicy
from legato.results.rows_file import read_rows_file

Run = Callable[..., Ended]
ASKED = ((), ("--chat",))
"""By text, and by chat."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    data = tmp_path / "questions.jsonl"
    lines = [{"question": f"{n}+{n}?", "answer": f"{2 * n}\n#### {2 * n}"} for n in range(4)]
    data.write_text("\n".join(map(json.dumps, lines)))

    def run(*arguments: str) -> Ended:
        return typed(monkeypatch, capsys, "eval", "gsm8k", "--data", str(data), *arguments, columns=160)

    return run


@pytest.fixture
def small(tiny_model: Path) -> list[str]:
    return [
        *("--model", str(tiny_model), "--device", "cpu", "--max-num-seqs", "2", "--max-num-batched-tokens", "64"),
        *("--graph-sizes", "2", "--kv-cache-memory-bytes", "1000000", "--max-tokens", "12", "--num-shots", "1"),
    ]


def test_every_policy_gives_the_same_answers(run: Run, small: list[str], tmp_path: Path) -> None:
    ended = run(*small, "--compare-policies", "--output", str(tmp_path / "result.json"))
    assert ended.code == 0, ended.out
    rows = read_rows_file(tmp_path / "result.json").rows
    assert [row["policy"] for row in rows] == [str(policy) for policy in GraphPolicy]
    assert [row["identical"] for row in rows] == [None, 4, 4, 4, 4]
    assert {row["compared_with"] for row in rows[1:]} == {f"{rows[0]['backend']} none"}
    assert rows[0]["graph_steps"].keys() == {"target eager"}
    assert "target full" in rows[-1]["graph_steps"]
    for row in rows:
        assert (row["num_questions"], row["max_tokens"], row["case"]) == (4, 12, "gsm8k-1-shot")
        assert row["tpot_ms"] > 0
        assert 0 <= row["interval_strict"][0] <= row["accuracy_strict"] <= row["interval_strict"][1] <= 1
    assert "same answers" in ended.out


def test_backends_that_disagree_end_with_1_and_the_difference_is_named(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "faulty", "planted_faults:WrongDecodeKernelBackend")
    ended = run(*small, "--backends", "reference, faulty", "--policy", "none", "--max-tokens", "40", "--json")
    assert ended.code == 1
    right, wrong = json.loads(ended.out)
    assert (right["identical"], wrong["compared_with"]) == (None, "reference none")
    assert wrong["identical"] + len(wrong["differences"]) == 4
    assert all(one["position"] >= 1 for one in wrong["differences"]), "the first token comes from the prompt"
    assert not all(one["near_tie"] for one in wrong["differences"])


def test_a_server_gives_the_answers_of_the_engine_in_process(run: Run, small: list[str], tiny_model: Path) -> None:
    alone = [json.loads(run(*small, "--json", *chat).out)[0] for chat in ASKED]
    options = EngineOptions(model=str(tiny_model), served_model_name="tiny", max_num_seqs=2, graph_policy="none")
    with running_server(options, factory=REAL, api_key=KEY) as server:
        asked = ["--num-shots", "1", "--max-tokens", "12", "--base-url", f"{server.url}/v1"]
        with_key = (*asked, "--api-key", KEY, "--concurrency", "3", "--json")
        served = [json.loads(run(*with_key, *chat).out)[0] for chat in ASKED]
        refused = run(*asked)
    assert {(row["engine"], row["model"]) for row in served} == {("server", "tiny")}
    same = ("case", "accuracy_strict", "accuracy_flexible", "num_invalid", "num_without_mark", "num_questions")
    assert [[row[name] for name in same] for row in served] == [[row[name] for name in same] for row in alone]
    tokens = [[row["total_tok_per_s"] * row["seconds"] for row in rows] for rows in (alone, served)]
    assert tokens[0] == pytest.approx(tokens[1])
    assert tokens[0][0] != pytest.approx(tokens[0][1]), "a chat has other prompts"
    assert (refused.code, "401" in refused.err) == (2, True)
    assert run(*asked).code == 2, "nobody listens there any more"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--num-questions", "0"),
        ("--num-shots", "-1"),
        ("--num-shots", "4"),
        ("--base-url", "http://127.0.0.1:1", "--compare-policies"),
        ("--compare-policies", "--graph-policy", "full"),
        ("--backends", "no_such_backend"),
        ("--examples", "no such file"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(run: Run, small: list[str], arguments: tuple[str, ...]) -> None:
    ended = run(*small, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Error" in ended.err
