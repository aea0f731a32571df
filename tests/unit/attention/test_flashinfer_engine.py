"""A whole engine over the flashinfer backend, a double in place of its kernels: what is captured, planned, replayed."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from flashinfer_double import PLANS, modules
from tiny_engine import build, request, tokens, write_config

from legato.attention.backends import flashinfer_prefill
from legato.attention.backends.flashinfer import FlashInferBackend
from legato.attention.backends.flashinfer_support import Installation, decide
from legato.attention.graph_support import Support
from legato.attention.registry import BACKENDS
from legato.attention.setup import AttentionSetup
from legato.kvcache.spec import KVSpec

REQUESTS = [request("one", range(1, 30)), request("two", [40, 3]), request("three", range(5, 22), max_tokens=20)]


class FlashInferOnTheCpu(FlashInferBackend):
    """Decides as on Hopper, and keeps its tensors on the CPU."""

    capability: ClassVar[tuple[int, int]] = (9, 0)

    def __init__(self, setup: AttentionSetup) -> None:
        super().__init__(
            replace(setup, device=replace(setup.device, capability=self.capability, num_multiprocessors=4))
        )

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        device = replace(setup.device, kind="cuda", capability=cls.capability)
        asked = replace(setup, device=device, dtype="bfloat16")
        return decide(asked, spec, Installation(package=True, compiler=True))


class FlashInferAsOnAmpere(FlashInferOnTheCpu):
    """Has no kernel that reads lengths on the device."""

    capability = (8, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(BACKENDS, "flashinfer", f"{__name__}:FlashInferOnTheCpu")
    return write_config(tmp_path, head_dim=64)


@pytest.fixture
def ampere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(BACKENDS, "flashinfer", f"{__name__}:FlashInferAsOnAmpere")
    return folder


OPTIONS = {"block_size": 16, "max_model_len": 64, "kv_cache_memory_bytes": 1 << 20, "graph_sizes": (2, 4, 32)}


@pytest.mark.parametrize("policy", ["none", "piecewise", "full_decode_only", "full_and_piecewise", "full"])
def test_every_policy_gives_the_oracles_tokens_and_drops_no_graph(folder: Path, policy: str) -> None:
    core = build(folder, attention_backend="flashinfer", graph_policy=policy, **OPTIONS)
    assert core.graph_report()["dropped"] == []
    oracle = build(folder, attention_backend="reference", graph_policy="none", **OPTIONS)
    assert tokens(core, REQUESTS) == tokens(oracle, REQUESTS)


def test_steps_launched_ahead_of_their_predecessors_tokens_give_the_same(folder: Path) -> None:
    plain, ahead = (
        build(folder, attention_backend="flashinfer", graph_policy="full_and_piecewise", overlap=overlap, **OPTIONS)
        for overlap in (False, True)
    )
    assert tokens(plain, REQUESTS) == tokens(ahead, REQUESTS)


def test_a_pure_decode_step_plans_nothing(folder: Path) -> None:
    core = build(folder, attention_backend="flashinfer", graph_policy="full_and_piecewise", **OPTIONS)
    PLANS.clear()
    assert len(tokens(core, [request("one", [1, 2, 3], max_tokens=10)])["one"]) == 10
    assert len(PLANS) == 1, "the prompt's step alone"


def test_windows_of_a_model_are_planned_and_captured_too(folder: Path) -> None:
    write_config(folder, head_dim=64, architectures=["MistralForCausalLM"], sliding_window=6)
    core = build(folder, attention_backend="flashinfer", graph_policy="full_and_piecewise", **OPTIONS)
    assert core.graph_report()["dropped"] == []
    oracle = build(folder, attention_backend="reference", graph_policy="none", **OPTIONS)
    assert tokens(core, REQUESTS) == tokens(oracle, REQUESTS)


@pytest.mark.parametrize("policy", ["none", "piecewise", "full_decode_only", "full_and_piecewise"])
@pytest.mark.parametrize("overlap", [False, True])
def test_decoding_with_plans_gives_the_oracles_tokens_in_every_policy(ampere: Path, policy: str, overlap: bool) -> None:
    core = build(ampere, attention_backend="flashinfer", graph_policy=policy, overlap=overlap, **OPTIONS)
    assert core.graph_report()["dropped"] == []
    oracle = build(ampere, attention_backend="reference", graph_policy="none", **OPTIONS)
    assert tokens(core, REQUESTS) == tokens(oracle, REQUESTS)


def test_a_decode_step_replays_a_full_graph_whose_plan_is_renewed(ampere: Path) -> None:
    core = build(ampere, attention_backend="flashinfer", graph_policy="full_and_piecewise", **OPTIONS)
    PLANS.clear()
    assert len(tokens(core, [request("one", range(1, 15), max_tokens=10)])["one"]) == 10
    assert [record.mode for record in core.step_log.last(9)] == ["full"] * 9
    prompt, *decodes = PLANS
    assert prompt["starts"] == [0, 14]
    assert [plan["pages"] for plan in decodes] == [[0, 1, 2]] * 2 + [[0, 2, 3]] * 7, "a page more behind 16 tokens"


def test_a_decode_between_segments_is_planned_as_one_without_padding(ampere: Path) -> None:
    core = build(ampere, attention_backend="flashinfer", graph_policy="piecewise", **OPTIONS)
    PLANS.clear()
    assert len(tokens(core, [request("one", range(1, 15), max_tokens=10)])["one"]) == 10
    assert {record.mode for record in core.step_log.recent} == {"piecewise"}
    prompt, *decodes = PLANS
    assert prompt["starts"] == [0, 14]
    assert [plan["pages"] for plan in decodes] == [[0, 1]] * 2 + [[0, 2]] * 7, "a page more behind 16 tokens"


def test_no_step_of_a_request_asks_the_device_for_lengths(ampere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = build(ampere, attention_backend="flashinfer", graph_policy="full_and_piecewise", overlap=True, **OPTIONS)

    def refuse(metadata: object) -> None:
        raise AssertionError("the host waits")

    monkeypatch.setattr(flashinfer_prefill, "_lengths_on_device", refuse)
    assert all(tokens(core, REQUESTS).values())


def test_windows_are_planned_apart_from_each_other(ampere: Path) -> None:
    write_config(ampere, head_dim=64, architectures=["MistralForCausalLM"], sliding_window=6)
    core = build(ampere, attention_backend="flashinfer", graph_policy="full_and_piecewise", overlap=True, **OPTIONS)
    assert core.graph_report()["dropped"] == []
    oracle = build(ampere, attention_backend="reference", graph_policy="none", **OPTIONS)
    assert tokens(core, REQUESTS) == tokens(oracle, REQUESTS)


def test_behind_drafts_lengths_are_read_from_the_device(ampere: Path) -> None:
    drafts = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    asked = OPTIONS | {"attention_backend": "flashinfer", "speculative_config": drafts}
    core = build(ampere, graph_policy="full_and_piecewise", **asked)
    assert core.graph_report()["dropped"] == []
    oracle = build(ampere, attention_backend="reference", graph_policy="none", **OPTIONS)
    assert tokens(core, REQUESTS) == tokens(oracle, REQUESTS)
