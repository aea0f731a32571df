"""lm-evaluation-harness, asking a server, gives the scores of ``legato eval gsm8k``: by text and by chat."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import running_server
from typed_command import typed

from legato.config.options import EngineOptions

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: make test brings it")

DATA = Path(__file__).parent / "gsm8k"
TASK = Path(__file__).parents[2] / "benchmarks" / "lm_eval" / "gsm8k_local.yaml"
# As the command does, but for the list of the harness's own tasks, which takes it longer to read than all else.
HARNESS = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

url, task, *models = sys.argv[1:]
for model in models:
    chat = "chat" in model
    found = simple_evaluate(
        model=model,
        model_args={"model": "tiny", "base_url": f"{url}/v1/{'chat/' * chat}completions", "tokenizer_backend": "none"},
        tasks=[task],
        task_manager=TaskManager(include_defaults=False),
        apply_chat_template=chat,
        fewshot_as_multiturn=chat,
        bootstrap_iters=0,
    )
    print(json.dumps(found["results"]["gsm8k_local"]))
"""


def harness_scores(url: str, tmp_path: Path) -> list[tuple[float, float]]:
    """Return strict and flexible score, of completions and of chats."""
    caches = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HARNESS, url, TASK, "local-completions", "local-chat-completions"]
    ended = subprocess.run(command, env=os.environ | caches, cwd=DATA, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = map(json.loads, ended.stdout.splitlines()[-2:])
    return [(each["exact_match,strict-match"], each["exact_match,flexible-extract"]) for each in found]


def test_the_harness_gives_the_scores_of_our_own_evaluation(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = EngineOptions(model=str(tiny_model), served_model_name="tiny")
    with running_server(options, factory="recalling_core:build", step_s=0.0) as server:
        theirs = harness_scores(server.url, tmp_path)
        files = ("--data", str(DATA / "test.jsonl"), "--examples", str(DATA / "train.jsonl"))
        asked = ("eval", "gsm8k", *files, "--base-url", server.url, "--json")
        rows = [json.loads(typed(monkeypatch, capsys, *asked, *chat).out)[0] for chat in ((), ("--chat",))]
    assert [(row["accuracy_strict"], row["accuracy_flexible"]) for row in rows] == theirs
    assert 0 < rows[0]["accuracy_strict"] < 1, "the examples tell some answers, and not all"
    assert rows[0]["case"] == "gsm8k-5-shot"
    assert rows[1]["case"] == "gsm8k-5-shot-chat"
