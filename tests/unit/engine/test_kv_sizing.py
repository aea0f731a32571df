"""The cache takes what a device of its own has left; what was estimated and what graphs took is told."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny_engine import build, kv_bytes, options, request, tokens, write_config

from legato.attention.protocol import AttentionContext
from legato.config.options import EngineOptions
from legato.device.recording import RecordingDevice
from legato.engine import memory
from legato.engine import resolve as resolving
from legato.engine.bootstrap import build_engine
from legato.engine.inspect import graph_report
from legato.engine.memory import MemoryReport, left_for_kv
from legato.errors import ConfigError
from legato.models.llama import LlamaForCausalLM
from legato.models.registry import MODELS

MIB = 1 << 20
ALL_KEYS = {"graph_policy": "full_and_piecewise", "graph_sizes": (1, 2, 4, 8, 16, 32)}


class OwnMemory(RecordingDevice):
    """A device whose memory is in use by one number, and by what its allocator keeps of steps."""

    has_own_memory = True
    total, used, kept_of_steps = 60 * MIB, 20 * MIB, 7 * MIB

    def __init__(self) -> None:
        super().__init__()
        self._kept = 0

    def synchronize(self) -> None:
        self._kept = self.kept_of_steps

    def release_unused_memory(self) -> None:
        self._kept = 0

    def memory_total_bytes(self) -> int:
        return self.total

    def memory_free_bytes(self) -> int:
        return self.total - self.used - self._kept


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path)


@pytest.fixture
def own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "open_device", lambda name: OwnMemory())
    monkeypatch.setattr(memory, "_PLANNED_RESERVE_BYTES", MIB)  # for a device of a normal size


def open_options(folder: Path, **changes: object) -> EngineOptions:
    return options(folder, kv_cache_memory_bytes=None, **(ALL_KEYS | changes))


def test_what_is_left_of_the_share_is_the_caches() -> None:
    device = OwnMemory()
    assert left_for_kv(device, share=0.5, still_needed=3 * MIB) == (30 - 20 - 3) * MIB
    assert left_for_kv(device, share=0.25, still_needed=6 * MIB) == (15 - 20 - 6) * MIB


@pytest.mark.usefixtures("own_memory")
def test_the_cache_takes_the_rest_after_activations_and_estimated_graphs(folder: Path) -> None:
    core = build_engine(open_options(folder, gpu_memory_utilization=0.5))
    told = core.graph_report()["memory"]
    assert told["activations"] == 7 * MIB
    left = (30 - 20 - 7) * MIB - told["graphs_estimated"]
    block = kv_bytes(num_blocks=1, block_size=4)
    assert told["kv_cache"] == left // block * block
    assert told["kv_cache_tokens"] == (left // block - 1) * 4
    assert core.config.cache.num_blocks == left // block
    assert core.runner.program.caches[0].key.shape[0] == core.config.cache.num_blocks


@pytest.mark.usefixtures("own_memory")
def test_the_estimate_agrees_with_what_the_graphs_take(folder: Path) -> None:
    report = build_engine(open_options(folder)).graph_report()
    told = report["memory"]
    assert told["graphs"] == report["shared_bytes"] + sum(entry["bytes"] for entry in report["catalog"])
    assert told["graphs"] > 0
    assert abs(told["graphs_estimated"] - told["graphs"]) <= 0.1 * told["graphs"]
    assert report["dropped"] == []


@pytest.mark.usefixtures("own_memory")
def test_the_metric_is_the_reports_number(folder: Path) -> None:
    core = build_engine(open_options(folder))
    assert core.stats().graph_bytes == core.graph_report()["memory"]["graphs"]


@pytest.mark.usefixtures("own_memory")
def test_an_engine_with_a_measured_cache_gives_the_tokens_of_any_other(folder: Path) -> None:
    wanted = [request("one", range(1, 12)), request("two", [40])]
    core = build_engine(open_options(folder, graph_strict=True))
    assert tokens(core, wanted) == tokens(build(folder, graph_policy="none"), wanted)


@pytest.mark.usefixtures("own_memory")
def test_bytes_of_the_user_are_not_measured_but_told(folder: Path) -> None:
    told = build(folder).graph_report()["memory"]
    assert (told["activations"], told["graphs_estimated"]) == (None, None)
    assert told["kv_cache"] == kv_bytes(num_blocks=65, block_size=4)
    assert told["kv_cache_tokens"] == 64 * 4
    assert told["graphs"] > 0


@pytest.mark.usefixtures("own_memory")
def test_too_little_memory_for_the_length_asked_for_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnMemory, "kept_of_steps", 39 * MIB)
    with pytest.raises(ConfigError, match="max-model-len"):
        build_engine(open_options(folder))


class NoStepFits(LlamaForCausalLM):
    """Runs out of memory at more tokens than a decode step has."""

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        if len(input_ids) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore")
        return super().forward(input_ids, positions, context)


@pytest.mark.usefixtures("own_memory")
def test_a_largest_step_that_does_not_fit_is_refused_with_its_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "LlamaForCausalLM", f"{__name__}:NoStepFits")
    with pytest.raises(ConfigError, match="largest step") as caught:
        build_engine(open_options(folder))
    assert "--max-num-batched-tokens 32" in caught.value.details["requested"]


def test_a_cache_that_cannot_be_allocated_is_refused_with_its_options(folder: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be allocated") as caught:
        build(folder, kv_cache_memory_bytes=1 << 60)
    assert "--kv-cache-memory-bytes" in caught.value.details["options"]


@pytest.mark.usefixtures("own_memory")
def test_inspect_leaves_open_what_is_measured_at_the_start(folder: Path) -> None:
    measured = graph_report(open_options(folder))["memory"]
    assert (measured["kv_cache"], measured["graphs"]) == (None, None)
    assert measured["weights"] > 0
    assert graph_report(options(folder))["memory"]["kv_cache"] == kv_bytes(num_blocks=65, block_size=4)


@pytest.mark.usefixtures("own_memory")
def test_the_terminal_shows_where_the_memory_went(folder: Path) -> None:
    out = io.StringIO()
    build_engine(open_options(folder), Console(file=out, width=300))
    assert (
        "memory in GiB: weights 0.00, activations 0.01, graphs 0.00 (estimated 0.00), KV cache 0.03 for "
        in out.getvalue()
    )


REPORT = MemoryReport(
    weights=1, activations=2, graphs_estimated=1000 * MIB, graphs=1000 * MIB, kv_cache=4, kv_cache_tokens=5
)


@pytest.mark.parametrize(
    ("estimated", "actual", "told"),
    [
        (1000, 1000, False),
        (1090, 1000, False),
        (1110, 1000, True),
        (890, 1000, True),
        (60, 1, False),
        (70, 1, True),
    ],
)
def test_an_estimate_off_by_a_tenth_and_by_more_than_64_mib_is_told(estimated: int, actual: int, told: bool) -> None:
    decisions = replace(REPORT, graphs_estimated=estimated * MIB, graphs=actual * MIB).wrong_estimate()
    assert bool(decisions) is told
    assert all(decision.subject == "graph memory" and decision.reason for decision in decisions)


def test_nothing_is_told_where_nothing_was_estimated() -> None:
    assert replace(REPORT, graphs_estimated=None).wrong_estimate() == ()


def test_graphs_are_captured_over_a_cache_with_less_than_a_block_for_each_request(folder: Path) -> None:
    core = build(folder, kv_cache_memory_bytes=kv_bytes(num_blocks=3, block_size=4), max_model_len=8, **ALL_KEYS)
    report = core.graph_report()
    assert report["dropped"] == []
    assert len(report["catalog"]) > 0
    assert len(tokens(core, [request("one", [1, 2, 3], max_tokens=4), request("two", [4])])["one"]) == 4
