"""``legato train-drafter`` as it is typed."""

import sys
from pathlib import Path

import pytest

from legato.cli.main import main


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["legato", "train-drafter", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_line_that_is_no_prompt_ends_the_command_with_its_place(monkeypatch, capsys, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "good"}\n{"prompt": 7}\n')
    assert run(monkeypatch, "--data", file, "--out", tmp_path / "head") == 2
    error = capsys.readouterr().err
    assert str(file) in error and "line 2" in error
    assert not (tmp_path / "head").exists()


def test_a_run_ends_with_how_good_its_head_is(monkeypatch, capsys, target: Path, prompts: Path, tmp_path):
    sizes = ("--max-length", 96, "--max-answer-tokens", 12, "--batch-tokens", 512, "--epochs", 1, "--unroll", 2)
    engine = ("--model", target, "--device", "cpu", "--enforce-eager", "--kv-cache-memory-bytes", 4_000_000)
    assert run(monkeypatch, "--data", prompts, "--out", tmp_path / "head", *sizes, *engine) == 0
    output = capsys.readouterr()
    assert "tokens a round" in output.out
    assert "draft vocabulary: 300 of 300 tokens" in output.err
    assert (tmp_path / "head" / "model.safetensors").exists()
