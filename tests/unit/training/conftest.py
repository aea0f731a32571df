"""A run of a few seconds: a tiny target with its tokenizer, and prompts that it can answer."""

import json
from pathlib import Path

import pytest
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions


@pytest.fixture(scope="session")
def target(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("target"), num_layers=7)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"what is {i} and {i * 7 % 13}?"}) + "\n" for i in range(16)))
    return file


@pytest.fixture(scope="session")
def engine(target: Path) -> EngineOptions:
    return EngineOptions(
        model=str(target), device="cpu", dtype="float32", kv_cache_memory_bytes=4_000_000, enforce_eager=True
    )


@pytest.fixture(scope="session")
def held_out(prompts: Path) -> Path:
    """The first four of the prompts."""
    file = prompts.parent / "held_out.jsonl"
    file.write_text("".join(prompts.read_text().splitlines(keepends=True)[:4]))
    return file
