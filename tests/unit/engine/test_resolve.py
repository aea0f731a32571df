"""Decisions are made from configuration files alone, and what cannot be had is refused before anything is built."""

from pathlib import Path

import pytest
from planted_faults import UniformOnlyBackend
from tiny_engine import kv_bytes, options, write_config

from legato.attention.registry import BACKENDS
from legato.engine.resolve import Resolved, resolve
from legato.errors import BackendError, ConfigError, GraphPolicyError, ModelNotFoundError, UnsupportedModelError
from legato.graphs.modes import GraphMode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def ask(folder: Path, **changes: object) -> Resolved:
    return resolve(options(folder, **changes))


def test_what_was_asked_is_what_is_resolved(folder: Path) -> None:
    config = ask(folder).config
    scheduler = config.scheduler
    assert (scheduler.max_model_len, scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (64, 4, 32)
    assert (config.cache.num_blocks, config.cache.block_size, config.cache.prefix_caching) == (65, 4, True)
    assert (config.device, config.dtype) == ("cpu", "float32")
    assert config.served_model_name == config.model_name == str(folder)


def test_without_limits_the_models_and_the_devices_are_taken(folder: Path) -> None:
    config = ask(
        folder, max_model_len=None, max_num_seqs=None, max_num_batched_tokens=None, kv_cache_memory_bytes=None
    ).config
    assert config.scheduler.max_model_len == 128
    assert (config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens) == (16, 512)
    assert config.cache.num_blocks == (1 << 30) // kv_bytes(num_blocks=1, block_size=4)


def test_a_small_cache_shortens_sequences_that_nobody_asked_for(folder: Path) -> None:
    memory = kv_bytes(num_blocks=11, block_size=4)
    assert ask(folder, max_model_len=None, kv_cache_memory_bytes=memory).config.scheduler.max_model_len == 40


def test_a_small_cache_does_not_shorten_what_was_asked_for(folder: Path) -> None:
    with pytest.raises(ConfigError, match="max-model-len"):
        ask(folder, max_model_len=64, kv_cache_memory_bytes=kv_bytes(num_blocks=11, block_size=4))


def test_a_step_is_never_given_more_tokens_than_requests_can_have(folder: Path) -> None:
    scheduler = ask(folder, max_num_seqs=2, max_model_len=10, max_num_batched_tokens=500).config.scheduler
    assert scheduler.max_num_batched_tokens == 20


@pytest.mark.parametrize(
    "changes",
    [
        {"max_num_seqs": 0},
        {"max_num_seqs": -1},
        {"max_num_batched_tokens": 0},
        {"max_num_batched_tokens": 3},
        {"max_model_len": 129},
        {"max_model_len": 0},
        {"max_model_len": -5},
        {"block_size": 0},
        {"block_size": 2000},
        {"kv_cache_memory_bytes": 0},
        {"kv_cache_memory_bytes": -1},
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.5},
        {"graph_sizes": (0,)},
        {"compilation_config": "{"},
    ],
)
def test_a_value_out_of_range_is_refused_with_its_limit(folder: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(folder, **changes)
    assert caught.value.details


def test_a_missing_model_an_unknown_architecture_and_an_unknown_backend_are_told_apart(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFoundError):
        ask(tmp_path / "nothing" / "here" / "at all")
    with pytest.raises(UnsupportedModelError):
        ask(write_config(tmp_path / "other", architectures=["StrangeForCausalLM"]))
    with pytest.raises(BackendError):
        ask(folder, attention_backend="strange")


def test_choices_made_for_the_user_are_decisions_with_reasons(folder: Path) -> None:
    decisions = {decision.subject: decision for decision in ask(folder).config.decisions}
    assert decisions.keys() == {"attention backend", "graph policy"}
    assert all(decision.reason for decision in decisions.values())
    assert ask(folder, attention_backend="reference", graph_policy="full").config.decisions == ()
    (named,) = ask(folder, attention_backend="TORCH_SDPA", graph_policy="full").config.decisions
    assert (named.requested, named.given) == ("TORCH_SDPA", "torch_sdpa")


def test_the_catalog_reaches_every_limit_of_the_scheduler(folder: Path) -> None:
    resolved = ask(folder, graph_policy="full_and_piecewise")
    assert max(key.num_reqs for key in resolved.catalog.keys if key.mode is GraphMode.FULL) == 4
    assert max(key.num_tokens for key in resolved.catalog.keys if key.mode is GraphMode.PIECEWISE) == 32
    assert resolved.limits.max_model_len == 64


def test_layers_with_and_without_windows_are_groups_of_their_own(tmp_path: Path) -> None:
    folder = write_config(
        tmp_path,
        architectures=["Qwen2ForCausalLM"],
        model_type="qwen2",
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
    )
    assert [group.name for group in ask(folder).layer_groups] == ["full", "window_16"]


def test_strict_mode_passes_where_everything_can_be_had(folder: Path) -> None:
    assert ask(folder, graph_policy="full", graph_strict=True).config.graph_strict


def test_strict_mode_refuses_what_a_backend_cannot_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, UniformOnlyBackend.name, "planted_faults:UniformOnlyBackend")
    lowered = ask(folder, graph_policy="full", attention_backend="uniform_only")
    assert [(decision.requested, decision.given) for decision in lowered.config.decisions] == [("full", "piecewise")]
    with pytest.raises(GraphPolicyError, match="--graph-policy full_and_piecewise"):
        ask(folder, graph_policy="full", attention_backend="uniform_only", graph_strict=True)
