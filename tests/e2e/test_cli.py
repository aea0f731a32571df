"""The commands as typed, over a tiny random model: what reaches which stream, and how they end."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typed_command import Ended, typed

from legato import LLM, SamplingParams
from legato.cli.chat import Conversation
from legato.graphs.modes import GraphPolicy
from legato.results.rows_file import read_rows_file

Run = Callable[..., Ended]
SMALL_CACHE = 1_000_000


@pytest.fixture
def run(tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``legato`` with the arguments, and for commands with an engine a small one over the tiny model."""

    def run(command: str, *arguments: str, model: Path | str = tiny_model) -> Ended:
        engine = ["--model", str(model), "--max-num-seqs", "4", "--max-num-batched-tokens", "32"]
        small = ["--kv-cache-memory-bytes", str(SMALL_CACHE)]
        return typed(monkeypatch, capsys, *command.split(), *engine, *small, *arguments)

    return run


@pytest.fixture
def config_only(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model's configuration without weights and without a tokenizer."""
    (tmp_path / "config.json").write_bytes((tiny_model / "config.json").read_bytes())
    return tmp_path


def test_json_gives_one_object_per_prompt_and_nothing_else_on_standard_output(run: Run) -> None:
    ended = run("generate", "--json", "--max-tokens", "6", "--ignore-eos", "one", "three four")
    assert ended.code == 0
    assert [answer["prompt"] for answer in ended.objects] == ["one", "three four"]
    for answer in ended.objects:
        assert list(answer) == ["prompt", "prompt_token_ids", "token_ids", "text", "finish_reason"]
        assert len(answer["token_ids"]) == 6
        assert answer["finish_reason"] == "length"
    assert "tokens/s" in ended.err


def test_a_prompt_gets_the_same_answer_alone_in_a_batch_and_streamed(run: Run) -> None:
    options = ("--max-tokens", "8", "--ignore-eos")
    batch = run("generate", "--json", *options, "one", "two", "three")
    alone = run("generate", "--json", *options, "two")
    streamed = run("generate", *options, "two")
    assert batch.objects[1] == alone.objects[0]
    assert streamed.out == f"{alone.objects[0]['text']}\n"
    assert "first after" in streamed.err


def test_token_ids_go_in_and_out_of_a_model_without_weights_and_tokenizer(run: Run, config_only: Path) -> None:
    options = ("--load-format", "dummy", "--max-tokens", "5", "--ignore-eos")
    ended = run("generate", "--json", "--prompt-token-ids", "[[5, 6, 7], [8]]", *options, model=config_only)
    assert ended.code == 0
    assert [answer["prompt_token_ids"] for answer in ended.objects] == [[5, 6, 7], [8]]
    assert [answer["prompt"] for answer in ended.objects] == [None, None]
    streamed = run("generate", "--prompt-token-ids", "[5, 6, 7]", *options, model=config_only)
    assert streamed.out.split() == [str(token_id) for token_id in ended.objects[0]["token_ids"]]


def test_a_text_prompt_for_a_model_without_a_tokenizer_is_refused(run: Run, config_only: Path) -> None:
    ended = run("generate", "--load-format", "dummy", "hello", model=config_only)
    assert (ended.code, ended.out) == (2, "")
    assert "no tokenizer" in ended.err


def test_chat_writes_the_question_as_the_template_wants_it(run: Run) -> None:
    ended = run("generate", "--json", "--chat", "--system", "brief", "--max-tokens", "1", "hi", "ho")
    expected = "<|start|>system\nbrief<|end|>\n<|start|>user\nhi<|end|>\n<|start|>assistant\n"
    assert ended.objects[0]["prompt"] == expected


def test_a_streamed_chat_answer_is_the_batched_one(run: Run) -> None:
    options = ("--chat", "--max-tokens", "8", "--ignore-eos")
    batch = run("generate", "--json", *options, "hi", "ho")
    assert run("generate", *options, "ho").out == f"{batch.objects[1]['text']}\n"


def test_several_outputs_and_their_log_probabilities_stand_beside_the_first(run: Run) -> None:
    ended = run("generate", "--json", "--n", "2", "--temperature", "1", "--logprobs", "2", "--max-tokens", "4", "one")
    [answer] = ended.objects
    assert len(answer["outputs"]) == 2
    assert answer["outputs"][0]["token_ids"] == answer["token_ids"]
    assert [len(entry["top_ids"]) for entry in answer["logprobs"]] == [2] * len(answer["token_ids"])


def test_show_graphs_tells_which_graphs_were_replayed(run: Run) -> None:
    ended = run("generate", "--show-graphs", "--max-tokens", "5", "--ignore-eos", "one")
    assert "Graphs replayed" in ended.err
    assert "tokens=1 reqs=1 query_len=1 greedy" in ended.err
    assert "Graphs" not in ended.out


def test_graphs_and_no_graphs_print_the_same_text(run: Run) -> None:
    options = ("--max-tokens", "8", "--ignore-eos", "one")
    texts = {run("generate", "--graph-policy", policy, *options).out for policy in ("full", "full_and_piecewise")}
    assert texts == {run("generate", "--enforce_eager", *options).out}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "there is no prompt"),
        (("--prompt-token-ids", "[1, 2"), "not JSON"),
        (("--prompt-token-ids", "[9999]"), "9999"),
        (("--dtype", "int3", "one"), "bfloat16"),
        (("--graph-sizes", "1,x", "one"), "integers between commas"),
        (("--top-p", "7", "one"), "top_p"),
        (("--attention-backend", "nothing", "one"), "torch_sdpa"),
        (("-cc", '{"cudagraph_mode": "SOME"}', "one"), "FULL_AND_PIECEWISE"),
        (("--graph-policy", "none", "-cc", '{"cudagraph_mode": "FULL"}', "one"), "contradict"),
    ],
)
def test_what_cannot_be_had_ends_with_status_2_and_says_what_can(
    run: Run, arguments: tuple[str, ...], named: str
) -> None:
    ended = run("generate", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert named in ended.err
    assert "Traceback" not in ended.err


def test_a_model_that_is_not_there_is_named_with_the_ways_to_name_one(run: Run) -> None:
    ended = run("generate", "one", model="./nowhere")
    assert ended.code == 2
    assert "ModelNotFoundError" in ended.err
    assert ".gguf file" in ended.err


def test_a_conversation_is_remembered_until_it_is_reset(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(*lines: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
        ended = run("chat", "--max-tokens", "6", "--ignore-eos")
        assert ended.code == 0
        return [line for line in ended.out.split("> ")[1:] if line.strip()]

    first, second = talk("hi", "ho")
    again, _, after_reset = talk("hi", "/reset", "ho")[0], None, talk("/reset", "ho", "/exit", "never read")[0]
    assert first == again
    assert second != after_reset


class InterruptedAt(io.StringIO):
    """Standard output at which the user presses Ctrl-C when ``count`` pieces have been written."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_an_interrupted_answer_leaves_a_conversation_that_goes_on(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(tiny_model), max_num_seqs=1, kv_cache_memory_bytes=SMALL_CACHE)
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    told = Console(file=io.StringIO())
    conversation = Conversation(llm, params, None, told)
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "stdout", InterruptedAt(8))
    conversation.answer("hi")
    assert "stopped" in told.file.getvalue()  # type: ignore[attr-defined]
    assert llm.stats().generation_tokens < 30
    assert not llm.core.has_work
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    conversation.answer("ho")
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"] * 2
    assert llm.stats().generation_tokens >= 30


def test_a_conversation_that_has_become_too_long_is_refused_and_not_remembered(tiny_model: Path) -> None:
    llm = LLM(str(tiny_model), max_num_seqs=1, kv_cache_memory_bytes=SMALL_CACHE)
    told = Console(file=io.StringIO())
    conversation = Conversation(llm, SamplingParams(temperature=0.0), None, told)
    conversation.answer("x" * 500)
    assert conversation.messages == []
    assert "too long" in told.file.getvalue()  # type: ignore[attr-defined]


def test_a_latency_measurement_leaves_a_file_with_the_peers_figures_and_equal_tokens(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    workload = ("--batch-size", "1,2", "--input-len", "8", "--output-len", "6", "--iterations", "2", "--warmup", "1")
    modes = ("--mode", "full_decode_only", "--mode", "none")
    ended = run("bench latency", *workload, *modes, "--peer", "transformers", "--output", str(file))
    assert ended.code == 0, ended.err
    rows = read_rows_file(file).rows
    assert [(row["name"], row["case"]) for row in rows[:3]] == [
        ("legato full_decode_only", "decode-b1"),
        ("legato none", "decode-b1"),
        ("transformers", "decode-b1"),
    ]
    assert [(row["engine"], row["policy"]) for row in rows[:2]] == [("legato", "full_decode_only"), ("legato", "none")]
    assert all(other["equal_tokens"] == 1.0 for row in rows for other in row["speed_ups"])
    assert all(row["tpot_ms"] > 0 for row in rows)
    assert "target full" in rows[0]["graph_steps"]
    assert "target full" not in rows[1]["graph_steps"]
    assert "transformers" in ended.out


def test_throughput_counts_tokens_and_how_the_steps_ran_and_adds_its_row_to_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    lengths = ("--input-len", "8", "--output-len", "6", "--output", str(file))
    first = run("bench throughput", *lengths, "--num-requests", "3,4", "--concurrency", "2,1")
    second = run("bench throughput", *lengths, "--concurrency", "1", "--append", "--case", "again", "--json")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    rows = read_rows_file(file).rows
    assert [(row["case"], row["num_requests"]) for row in rows] == [("closed-2", 3), ("closed-1", 4), ("again", 8)]
    assert json.loads(second.out) == [rows[2]]
    assert rows[0]["total_tok_per_s"] == pytest.approx(3 * (8 + 6) / rows[0]["seconds"])
    assert rows[0]["shares"]["full"] + rows[0]["shares"]["eager"] == pytest.approx(1)
    assert rows[0]["shares"]["full"] > 0.5
    assert "Throughput" in first.out


def test_numbers_of_requests_that_do_not_match_those_at_once_are_refused(run: Run) -> None:
    ended = run("bench throughput", "--num-requests", "1,2,3", "--concurrency", "1,2")
    assert (ended.code, ended.out) == (2, "")
    assert "one for each" in ended.err


def test_a_drafter_on_prompts_of_a_file_leaves_a_row_with_its_acceptance_and_the_speed_over_plain(
    run: Run, tmp_path: Path
) -> None:
    prompts, file = tmp_path / "prompts.jsonl", tmp_path / "drafter.json"
    prompts.write_text('{"turns": ["one two three one two", "more"]}\n{"prompt": "four"}\n{"question": "five"}\n')
    config = '{"method": "ngram", "num_speculative_tokens": 2}'
    asked = ("--data", str(prompts), "--num-prompts", "2", "--max-tokens", "12", "--case", "mine")
    refused = run("bench drafter", *asked)
    assert (refused.code, "there is no drafter" in refused.err) == (2, True)
    ended = run(
        "bench drafter", *asked, "--batch-size", "2", "--speculative-config", config, "--output", str(file), "--json"
    )
    assert ended.code == 0, ended.err
    [row] = read_rows_file(file).rows
    assert json.loads(ended.out) == [row]
    assert (row["case"], row["method"], row["num_prompts"], row["batch_size"]) == ("mine", "ngram", 2, 2)
    assert 0 < row["output_tokens"] <= 24
    assert len(row["acceptance_rates"]) == 2
    assert row["same_as_plain"] == 1.0


def test_modes_measures_every_policy_and_draws_them(run: Run, tmp_path: Path) -> None:
    file, plot = tmp_path / "modes.json", tmp_path / "modes.png"
    workload = ("--batch-size", "1,2", "--input-len", "8", "--output-len", "4", "--iterations", "1", "--warmup", "0")
    ended = run("bench modes", *workload, "--max-num-seqs", "2", "--output", str(file), "--plot", str(plot))
    assert ended.code == 0, ended.err
    rows = read_rows_file(file).rows
    assert [row["policy"] for row in rows if row["case"] == "modes-b2"] == list(map(str, GraphPolicy))
    assert all(other["equal_tokens"] == 1.0 for row in rows for other in row["speed_ups"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_startup_splits_a_fresh_process_into_parts_that_add_up(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "startup.json"
    ended = run("bench startup", "--cold", "--output", str(file))
    assert ended.code == 0, ended.err
    start, graphs = read_rows_file(file).rows
    assert (start["case"], graphs["case"]) == ("startup-cold", "graph-memory")
    assert sum(start["phases"].values()) == pytest.approx(start["seconds"])
    assert min(start["phases"].values()) >= 0
    assert start["phases"]["import"] > 0.2
    assert {"weights", "warm-up", "capture", "canary", "first token"} < start["phases"].keys()
    assert graphs["gib"] > 0
    assert graphs["num_graphs"] > 0
    assert "process start to first token" in ended.out


def test_a_start_that_fails_shows_the_end_of_what_the_process_said(run: Run) -> None:
    ended = run("bench startup", model="./nowhere")
    assert ended.code == 1
    assert "did not start" in ended.err
    assert "ModelNotFoundError" in ended.err


def test_a_peer_that_is_not_installed_is_named_with_the_way_to_install_it(run: Run) -> None:
    ended = run("bench throughput", "--peer", "vllm", "--peer-alone")
    assert (ended.code, ended.out) == (2, "")
    assert "pip install vllm" in ended.err


def test_the_help_does_not_wait_for_torch() -> None:
    code = "import sys, legato.cli.main; sys.exit(bool({'torch', 'transformers', 'fastapi'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_printed() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "legato.cli.main", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("legato 0.")


def test_a_traceback_is_shown_when_it_is_asked_for() -> None:
    command = [sys.executable, "-m", "legato.cli.main", "generate"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    debug = subprocess.run(command, capture_output=True, text=True, check=False, env={"LEGATO_DEBUG": "1"})
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
