import io
from pathlib import Path

import pytest
from rich.console import Console
from tiny_engine import build, options, request, tokens, write_config

from legato.attention.backends.torch_sdpa import TorchSdpaBackend
from legato.attention.registry import BACKENDS
from legato.engine import bootstrap
from legato.engine.bootstrap import build_engine
from legato.errors import ConfigError, GraphPolicyError, ModelError
from legato.models.registry import MODELS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def test_the_terminal_shows_decisions_loading_and_graphs(folder: Path) -> None:
    out = io.StringIO()
    build_engine(options(folder, graph_sizes=(1, 2)), Console(file=out, width=200))
    text = out.getvalue()
    assert "graph policy: default -> full_decode_only" in text
    assert "attention backend: auto -> torch_sdpa" in text
    assert "loaded" in text
    assert "captured 8 graphs" in text


def test_without_a_console_nothing_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(folder, graph_sizes=(1,))
    assert capsys.readouterr() == ("", "")


def test_a_dropped_graph_is_shown_with_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "LlamaForCausalLM", "planted_faults:HostReadingModel")
    out = io.StringIO()
    build_engine(options(folder, graph_sizes=(1,)), Console(file=out, width=200))
    assert "captured 0 graphs" in out.getvalue()
    assert "capture_failed" in out.getvalue()


def test_strict_mode_raises_with_every_graph_that_cannot_serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "LlamaForCausalLM", "planted_faults:HostReadingModel")
    with pytest.raises(GraphPolicyError, match="4 graphs were required") as caught:
        build(folder, graph_sizes=(1,), graph_strict=True)
    assert len(caught.value.details) == 5, "four keys and the way out"


class NamedTriton(TorchSdpaBackend):
    name = "triton"


@pytest.mark.parametrize(
    ("backend", "compiled_with"),
    [("triton", ["triton"]), ("triton+reference", ["triton"]), ("torch_sdpa", []), ("torch_sdpa+triton", [])],
)
def test_tritons_kernels_are_compiled_in_steps_that_it_serves_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str, compiled_with: list[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setitem(BACKENDS, "triton", f"{__name__}:NamedTriton")
    monkeypatch.setattr(bootstrap, "compile_kernels", lambda _, program, *__: seen.append(program.backend.name))
    core = build(folder, attention_backend=backend, graph_sizes=(1,))
    assert seen == compiled_with
    assert core.runner.program.backend.name == core.config.attention_backend == backend


def test_the_same_seed_gives_the_same_dummy_model(folder: Path) -> None:
    wanted = [request("one", [1, 2, 3])]
    first, same, other = (tokens(build(folder, seed=seed, graph_policy="none"), wanted) for seed in (0, 0, 1))
    assert first == same != other


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_data_type_serves_on_graphs(folder: Path, dtype: str) -> None:
    core = build(folder, dtype=dtype, graph_policy="full_and_piecewise", graph_sizes=(2, 8))
    assert core.graph_report()["dropped"] == []
    assert len(tokens(core, [request("one", [1, 2, 3])])["one"]) == 8
    assert core.config.dtype == dtype


@pytest.mark.parametrize("family", ["Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"])
@pytest.mark.parametrize("policy", ["full", "full_and_piecewise"])
def test_every_family_gives_its_eager_tokens_on_graphs(tmp_path: Path, family: str, policy: str) -> None:
    folder = write_config(tmp_path, architectures=[family], sliding_window=6)
    wanted = [request("one", range(1, 12)), request("two", [40])]
    core = build(folder, graph_policy=policy, graph_sizes=(2, 16))
    assert core.graph_report()["dropped"] == []
    assert tokens(core, wanted) == tokens(build(folder, graph_policy="none"), wanted)


def test_a_model_without_weights_is_refused_unless_they_are_dummies(folder: Path) -> None:
    with pytest.raises((ModelError, ConfigError)):
        build(folder, load_format="auto")


def test_one_row_of_one_token_is_an_engine_too(folder: Path) -> None:
    core = build(folder, max_num_seqs=1, max_num_batched_tokens=1, graph_policy="full_and_piecewise")
    assert core.graph_report()["dropped"] == []
    expected = tokens(build(folder, graph_policy="none"), [request("one", [5, 6, 7])])
    assert tokens(core, [request("one", [5, 6, 7])]) == expected
