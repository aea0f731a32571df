"""Each fault that graphs are known for is caught, named, and served around with the right tokens."""

from collections import Counter
from pathlib import Path

import planted_faults
import pytest
import torch
from tiny_engine import build, request, run, tokens, write_config

from legato.attention.registry import BACKENDS
from legato.engine.core import EngineCore
from legato.errors import GraphPolicyError
from legato.kvcache.storage import LayerCache
from legato.models.registry import MODELS
from legato.observability.reasons import Reason
from legato.runner.buffers import InputBuffer

PROMPTS = {"a": (5, 6, 7), "b": (50, 40, 30, 20, 10, 0), "c": (9,)}
FEW_SIZES = {"graph_sizes": (1, 2, 4, 16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def serve(core: EngineCore) -> dict[str, list[int]]:
    return tokens(core, [request(name, prompt, max_tokens=6) for name, prompt in PROMPTS.items()])


def modes_and_reasons(core: EngineCore) -> Counter[tuple[str, str | None]]:
    return Counter((record.mode, record.reason) for record in core.step_log.recent if record.requested == "full")


def dropped(core: EngineCore) -> Counter[str]:
    return Counter(entry["reason"] for entry in core.graph_report()["dropped"])


@pytest.fixture
def faulty_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FrozenHostValueBackend", "HostReadingBackend", "RebuiltBlockTableBackend"):
        backend = getattr(planted_faults, name)
        monkeypatch.setitem(BACKENDS, backend.name, f"planted_faults:{name}")


@pytest.mark.usefixtures("faulty_backend")
@pytest.mark.parametrize("backend", ["frozen_host_value", "rebuilt_block_table"])
def test_a_value_frozen_at_capture_fails_the_canary_and_the_next_mode_serves(folder: Path, backend: str) -> None:
    faulty = {"attention_backend": backend, **FEW_SIZES}
    expected = serve(build(folder, graph_policy="none", **faulty))
    core = build(folder, graph_policy="full_and_piecewise", **faulty)
    assert dropped(core) == {"canary_failed": 3 * 4}, "three sizes, four samplers"
    assert serve(core) == expected
    assert modes_and_reasons(core) == {("piecewise", Reason.CANARY_FAILED): 5}


@pytest.mark.usefixtures("faulty_backend")
@pytest.mark.parametrize(("policy", "served"), [("full_and_piecewise", "piecewise"), ("full_decode_only", "eager")])
def test_a_host_read_in_attention_fails_the_capture_and_the_next_mode_serves(
    folder: Path, policy: str, served: str
) -> None:
    expected = serve(build(folder, graph_policy="none", attention_backend="reference"))
    core = build(folder, graph_policy=policy, attention_backend="host_reading", **FEW_SIZES)
    assert dropped(core) == {"capture_failed": 3 * 4}
    assert "Tensor.item" in core.graph_report()["dropped"][0]["detail"]
    assert serve(core) == expected
    assert modes_and_reasons(core) == {(served, Reason.CAPTURE_FAILED): 5}


def test_a_host_read_in_the_model_leaves_eager_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = serve(build(folder, graph_policy="none"))
    monkeypatch.setitem(MODELS, "LlamaForCausalLM", "planted_faults:HostReadingModel")
    core = build(folder, graph_policy="full_and_piecewise", **FEW_SIZES)
    assert dropped(core) == {"capture_failed": 3 * 4 + 4}
    assert core.graph_report()["catalog"] == []
    assert serve(core) == expected
    assert modes_and_reasons(core) == {("eager", Reason.CAPTURE_FAILED): 5}
    assert {record.mode for record in core.step_log.recent} == {"eager"}


@pytest.mark.usefixtures("faulty_backend")
@pytest.mark.parametrize("backend", ["host_reading", "frozen_host_value"])
def test_strict_mode_does_not_start_with_a_fault(folder: Path, backend: str) -> None:
    with pytest.raises(GraphPolicyError, match="cannot serve"):
        build(folder, graph_policy="full_decode_only", attention_backend=backend, graph_strict=True, **FEW_SIZES)


def test_strict_mode_starts_without_one(folder: Path) -> None:
    core = build(folder, graph_policy="full_and_piecewise", graph_strict=True, **FEW_SIZES)
    assert dropped(core) == {}


def test_padding_that_is_not_rewritten_fails_the_canary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = serve(build(folder, graph_policy="none"))
    monkeypatch.setattr(InputBuffer, "fill", planted_faults.fill_without_padding)
    core = build(folder, graph_policy="full_decode_only", **FEW_SIZES)
    assert dropped(core) == {"canary_failed": 2 * 4}, "one request on a graph of one has no padding"
    assert {entry["num_tokens"] for entry in core.graph_report()["catalog"]} == {1}
    assert serve(core) == expected


def test_padding_that_is_not_rewritten_fails_the_canary_of_piecewise_graphs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InputBuffer, "fill", planted_faults.fill_without_padding)
    core = build(folder, graph_policy="piecewise", graph_sizes=(16,))
    assert dropped(core) == {"canary_failed": 1}


def test_an_input_that_is_rebuilt_is_stale_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = serve(build(folder, graph_policy="none"))
    monkeypatch.setattr(InputBuffer, "fill", planted_faults.fill_by_rebuilding)
    core = build(folder, graph_policy="full_decode_only", **FEW_SIZES)
    assert dropped(core) == {"stale_epoch": 3 * 4}
    assert serve(core) == expected
    assert modes_and_reasons(core) == {("eager", Reason.STALE_EPOCH): 5}


def move_block_table(core: EngineCore) -> None:
    state = core._runner._program.state
    state.block_table = state.block_table.clone()


def move_cache(core: EngineCore) -> None:
    caches = core._runner._program.caches
    caches[1] = LayerCache(key=caches[1].key.clone(), value=caches[1].value)


def move_logits(core: EngineCore) -> None:
    buffers = core._runner._program.buffers
    object.__setattr__(buffers, "logits", torch.zeros_like(buffers.logits))


@pytest.mark.parametrize("move", [move_block_table, move_cache, move_logits])
@pytest.mark.parametrize("policy", ["full_decode_only", "full_and_piecewise", "full"])
def test_a_moved_buffer_makes_graphs_stale_and_they_are_never_replayed(folder: Path, move, policy: str) -> None:
    expected = serve(build(folder, graph_policy="none"))
    core = build(folder, graph_policy=policy, **FEW_SIZES)
    results: dict[str, list[int]] = {name: [] for name in PROMPTS}
    for name, prompt in PROMPTS.items():
        core.add(request(name, prompt, max_tokens=6))
    for number in range(6):
        if number == 3:
            move(core)
            replays_before = core.step_log.replays.total()
        for update in core.step():
            results[update.request_id] += update.token_ids
    assert not core.has_work
    assert results == expected
    assert core.step_log.replays.total() == replays_before
    assert [record.reason for record in list(core.step_log.recent)[3:]] == [Reason.STALE_EPOCH] * 3
    assert [record.mode for record in list(core.step_log.recent)[:3]][1:] == ["full", "full"]
    assert core.stats().graph_bytes == 0


def test_a_request_after_the_move_is_served_eagerly_too(folder: Path) -> None:
    core = build(folder, graph_policy="full_and_piecewise", **FEW_SIZES)
    move_block_table(core)
    assert {name: result.token_ids for name, result in run(core, [request("a", PROMPTS["a"])]).items()}["a"]
    assert {(record.mode, record.reason) for record in core.step_log.recent} == {("eager", Reason.STALE_EPOCH)}
