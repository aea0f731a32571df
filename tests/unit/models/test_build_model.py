"""A checkpoint fits its model entirely, or is refused with an error that names what does not."""

import json
from pathlib import Path

import pytest
import torch
from dense_context import logits_of
from safetensors.torch import load_file, save_file
from tiny_models import save, tiny

from legato.errors import ModelError, UnsupportedModelError, WeightsError
from legato.loading.architectures import ARCHITECTURES
from legato.loading.model_config import read_model_config
from legato.loading.source import resolve_model
from legato.loading.stored_tensor import LoadReport
from legato.models.build import build_model, checkpoint_parameters
from legato.models.causal_lm import CausalLM
from legato.models.registry import MODELS, model_class

NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tiny("Llama", num_hidden_layers=2), tmp_path)


def build(folder: Path, load_format: str = "auto", seed: int = 0) -> tuple[CausalLM, LoadReport]:
    source = resolve_model(str(folder), load_format)
    return build_model(source, read_model_config(source), torch.float32, "cpu", seed=seed)


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder: Path) -> str:
    with pytest.raises(WeightsError) as error:
        build(folder)
    return str(error.value)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop(NORM))
    message = refusal(folder)
    assert NORM in message
    assert "1 missing" in message


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NORM: torch.ones(65)}))
    message = refusal(folder)
    assert "model.safetensors" in message
    assert NORM in message
    assert "(64,)" in message
    assert "(65,)" in message


def test_a_config_that_lies_about_a_size_is_found_out_by_the_tensors(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 128}))
    message = refusal(folder)
    assert "mlp" in message
    assert "128" in message
    assert "96" in message


def test_more_layers_in_the_config_than_in_the_file_is_an_error(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    assert "model.layers.2." in refusal(folder)


def test_tensors_without_a_place_are_reported(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.extra.weight": torch.ones(1)}))
    assert build(folder)[1].unexpected == ("model.extra.weight",)


def test_known_leftovers_are_not_reported(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(folder, lambda tensors: tensors.update({name: torch.ones(8)}))
    assert build(folder)[1].unexpected == ()


def test_integer_weights_are_refused(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NORM: torch.ones(64, dtype=torch.int8)}))
    message = refusal(folder)
    assert "I8" in message
    assert NORM in message


def test_progress_runs_from_nothing_to_everything(folder: Path) -> None:
    source = resolve_model(str(folder))
    calls: list[tuple[int, int]] = []
    config = read_model_config(source)
    _, report = build_model(
        source, config, torch.float32, "cpu", progress=lambda done, total: calls.append((done, total))
    )
    done = [call[0] for call in calls]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] == calls[-1][1] == (folder / "model.safetensors").stat().st_size
    assert report.num_tensors == len(load_file(folder / "model.safetensors"))
    assert 0 < report.num_bytes <= done[-1]


def test_dummy_weights_need_only_the_config_and_follow_the_seed(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    first, again, other = (build(folder, "dummy", seed)[0] for seed in (3, 3, 4))
    token_ids = list(range(1, 20))
    torch.testing.assert_close(logits_of(first, token_ids), logits_of(again, token_ids), atol=0, rtol=0)
    assert not torch.allclose(logits_of(first, token_ids), logits_of(other, token_ids))


def test_dummy_weights_are_never_zero_and_keep_logits_near_unit_scale(folder: Path) -> None:
    model, _ = build(folder, "dummy")
    assert all(parameter.count_nonzero() == parameter.numel() for _, parameter in checkpoint_parameters(model))
    assert 0.3 < logits_of(model, list(range(1, 40))).std() < 3.0


def test_a_model_too_large_for_memory_is_an_error(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 2**50}))
    with pytest.raises(ModelError, match=r"cannot be allocated[\s\S]*LlamaForCausalLM in torch\.float32 on cpu"):
        build(folder, "dummy")


def test_a_model_can_be_built_within_inference_mode(folder: Path) -> None:
    with torch.inference_mode():
        model, _ = build(folder)
        assert logits_of(model, [1, 2, 3]).isfinite().all()


def test_every_architecture_that_can_be_read_can_be_built() -> None:
    assert list(MODELS) == list(ARCHITECTURES)
    assert all(issubclass(model_class(name), CausalLM) for name in MODELS)


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match="LlamaForCausalLM, MistralForCausalLM, Qwen2"):
        model_class("GPT2LMHeadModel")
