"""How vLLM is asked, on a stand-in with its interface: it has kernels for GPUs alone."""

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tiny_engine

from legato.bench.contestant import DraftCounts
from legato.bench.vllm_peer import VllmPeer
from legato.config.options import EngineOptions


@dataclass
class Engine:
    """What takes part of ``vllm.LLM``: its arguments, its counters, and requests one by one."""

    arguments: dict[str, Any]
    added: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list)

    def add_request(self, request_id: str, prompt: dict[str, Any], params: Any) -> None:
        self.added.append((request_id, prompt, params))

    @property
    def llm_engine(self) -> "Engine":
        return self

    def get_metrics(self) -> list[Any]:
        assert not self.arguments["disable_log_stats"], "Stat logging disabled"
        return [
            SimpleNamespace(name="vllm:num_requests_running", value=0.0),
            SimpleNamespace(name="vllm:spec_decode_num_drafts", value=10),
            SimpleNamespace(name="vllm:spec_decode_num_draft_tokens", value=30),
            SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens", value=12),
            SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=[7, 4, 1]),
        ]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Install the stand-in; returns its engines as they are built."""
    built: list[Engine] = []

    def llm(**arguments: Any) -> Engine:
        built.append(Engine(arguments))
        return built[-1]

    module = ModuleType("vllm")
    module.__spec__ = ModuleSpec("vllm", None)
    module.__dict__.update(
        __version__="9.9",
        LLM=llm,
        SamplingParams=lambda **values: SimpleNamespace(**values),
        sampling_params=SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA="delta")),
    )
    monkeypatch.setitem(sys.modules, "vllm", module)
    return built


def peer(options: EngineOptions, **changes: Any) -> VllmPeer:
    return VllmPeer(options, dtype="float32", max_model_len=64, max_num_seqs=2, **changes)


def test_drafts_are_counted_where_they_are_asked_for(vllm: list[Engine], tmp_path: Path) -> None:
    options = tiny_engine.options(tiny_engine.write_config(tmp_path))
    counts = peer(options, tells_drafts=True).drafts()
    assert counts == DraftCounts(num_judged=10, stood=(7, 4, 1))
    assert counts.acceptance_length == pytest.approx(2.2)
    assert peer(options).drafts() == DraftCounts()


def test_a_request_ends_at_the_tokens_given_and_at_no_others(vllm: list[Engine], tmp_path: Path) -> None:
    asked = peer(tiny_engine.options(tiny_engine.write_config(tmp_path)))
    asked.add("one", (1, 2), 5, frozenset({9, 4}))
    [(request_id, prompt, params)] = vllm[0].added
    assert (request_id, prompt) == ("one", {"prompt_token_ids": [1, 2]})
    assert (params.max_tokens, params.ignore_eos, params.stop_token_ids) == (5, True, [4, 9])


def test_the_drafter_goes_to_the_peer_as_it_was_typed(vllm: list[Engine], tmp_path: Path) -> None:
    text = '{"method": "eagle3", "model": "head", "num_speculative_tokens": 3}'
    peer(tiny_engine.options(tiny_engine.write_config(tmp_path), speculative_config=text))
    expected = {"method": "eagle3", "model": "head", "num_speculative_tokens": 3}
    assert vllm[0].arguments["speculative_config"] == expected
    assert vllm[0].arguments["model"] == str(tmp_path)
