"""A model that cannot be one graph is refused with the place in its code; so is a machine that cannot compile."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compiled_models import CPU, MAX_TOKENS, as_traced, tiny
from planted_faults import HostReadingModel
from tiny_engine import build, write_config

from legato.attention.protocol import AttentionContext
from legato.compilation.compiled_model import compile_model
from legato.compilation.inductor import check_inductor
from legato.errors import ConfigError, ModelError
from legato.models.causal_lm import CausalLM
from legato.models.llama import LlamaForCausalLM


class BreakingModel(LlamaForCausalLM):
    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        torch._dynamo.graph_break()
        return super().forward(input_ids, positions, context)


class ShapeReadingModel(LlamaForCausalLM):
    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        hidden = super().forward(input_ids, positions, context)
        return hidden * 2 if input_ids.shape[0] > 20 else hidden


class FixedSizeModel(LlamaForCausalLM):
    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, context: AttentionContext) -> torch.Tensor:
        return super().forward(input_ids, positions, context) + torch.ones(16, 32)


@pytest.fixture
def as_family(tmp_path: Path) -> Callable[[type[CausalLM]], CausalLM]:
    model = tiny(tmp_path)

    def change(family: type[CausalLM]) -> CausalLM:
        model.__class__ = family
        return model

    return change


def test_a_read_on_the_host_is_refused_with_its_line(as_family: Callable[[type[CausalLM]], CausalLM]) -> None:
    with pytest.raises(ModelError, match=r"host reads|not one graph") as caught:
        compile_model(as_family(HostReadingModel), CPU, as_traced, max_num_tokens=MAX_TOKENS)
    assert "planted_faults.py" in str(caught.value.details["place"])


def test_a_graph_break_is_refused_with_its_line(as_family: Callable[[type[CausalLM]], CausalLM]) -> None:
    with pytest.raises(ModelError, match="not one graph") as caught:
        compile_model(as_family(BreakingModel), CPU, as_traced, max_num_tokens=MAX_TOKENS)
    assert "test_refusals.py" in str(caught.value.details["place"])
    assert "graph_break" in str(caught.value.details["found"])


@pytest.mark.parametrize("family", [ShapeReadingModel, FixedSizeModel])
def test_a_model_that_looks_at_the_number_of_tokens_is_refused(
    as_family: Callable[[type[CausalLM]], CausalLM], family: type[CausalLM]
) -> None:
    with pytest.raises(ModelError) as caught:
        compile_model(as_family(family), CPU, as_traced, max_num_tokens=MAX_TOKENS)
    assert "test_refusals.py" in str(caught.value)


def test_a_missing_compiler_is_named_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match="needs a compiler") as caught:
        build(tmp_path, compile="inductor")
    assert "g++" in str(caught.value.details["options"])


def test_a_compiler_that_the_environment_names_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own-c++"
    own.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", f"{own} -O2")
    check_inductor("cpu")


@pytest.mark.parametrize(("version", "serves"), [("2.10.1+cu130", False), ("2.11.0", True), ("3.0.0a0+git1", True)])
def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch, version: str, serves: bool) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setenv("CXX", "true")
    if serves:
        check_inductor("cpu")
        return
    with pytest.raises(ConfigError, match="PyTorch") as caught:
        check_inductor("cpu")
    assert caught.value.details["found"] == version


def test_another_compiler_is_not_known(tmp_path: Path) -> None:
    write_config(tmp_path)
    with pytest.raises(ConfigError, match="--compile"):
        build(tmp_path, compile="nvfuser")


def test_what_holds_for_every_size_that_is_asked_for_is_no_condition(
    as_family: Callable[[type[CausalLM]], CausalLM],
) -> None:
    model = as_family(ShapeReadingModel)
    assert compile_model(model, CPU, as_traced, max_num_tokens=20).report.num_pieces == 3
