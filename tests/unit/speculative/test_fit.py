"""A drafter that does not belong to its target is refused before anything is loaded, with both sides named."""

import json
from pathlib import Path

import pytest
from tiny_engine import CONFIG, write_config
from tiny_heads import eagle3_config, eagle3_tensors, eagle_config, eagle_tensors, write_head

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.errors import ConfigError, LegatoError, ModelNotFoundError, UnsupportedModelError
from legato.loading.hf_config import parse_hf_config
from legato.speculative.eagle3 import Eagle3Drafter
from legato.speculative.registry import drafter_class
from legato.speculative.setup import DrafterPlan


def target(**changes: object) -> ModelConfig:
    return parse_hf_config({**CONFIG, "num_hidden_layers": 7, **changes}, "config.json")


def plan(method: str, folder: Path | None, of: ModelConfig, load_format: str = "auto") -> DrafterPlan:
    config = SpeculativeConfig(
        method=method,
        num_speculative_tokens=3,
        model=None if folder is None else str(folder),
        load_format=load_format,
    )
    return drafter_class(method).plan(config, of)


def eagle3(folder: Path, **changes: object) -> Path:
    return write_head(folder, eagle3_config(**changes), eagle3_tensors())


def test_a_heads_layer_stands_behind_the_targets(tmp_path: Path) -> None:
    found = plan("eagle3", eagle3(tmp_path), target())
    assert [group.layers for group in found.layer_groups] == [(7,)]
    assert found.auxiliary_layers == (2, 3, 4)
    assert found.extends
    assert plan("eagle3", eagle3(tmp_path), target(num_hidden_layers=32)).auxiliary_layers == (2, 16, 29)


def test_a_head_may_name_the_layers_that_it_reads(tmp_path: Path) -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    assert plan("eagle3", eagle3(tmp_path, **ids), target(num_hidden_layers=3)).auxiliary_layers == (0, 1, 2)
    assert plan("eagle3", eagle3(tmp_path, eagle_config=ids), target()).auxiliary_layers == (0, 1, 2)


def test_the_bytes_of_a_head_are_those_of_its_tensors(tmp_path: Path) -> None:
    stored = sum(t.numel() for name, t in eagle3_tensors().items() if name not in ("d2t", "t2d")) * 4
    tables = 2 * 40 * 8 + 128 * 2 * 8 * 4
    assert plan("eagle3", eagle3(tmp_path), target()).weight_bytes == stored + tables


@pytest.mark.parametrize(
    ("changes", "of", "words"),
    [
        ({}, {"hidden_size": 64}, ("hidden size", "32 in the drafter", "64 in the target")),
        ({}, {"vocab_size": 100}, ("vocabulary", "96 in the drafter", "100 in the target")),
        ({}, {"vocab_size": 100, "hidden_size": 64}, ("vocabulary", "hidden size")),
        ({}, {"num_hidden_layers": 2}, ("2, 1, -1", "with 2 layers")),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, {}, ("1, 2, 9", "with 7 layers")),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, {}, ("1, 2", "3 different layers")),
        ({"num_hidden_layers": 2}, {}, ("one layer", "2 layers")),
        ({"target_hidden_size": 48}, {"hidden_size": 48}, ("embedding width", "32 in the drafter", "48")),
    ],
)
def test_an_eagle3_head_of_another_target_is_refused(
    changes: dict[str, object], of: dict[str, object], words: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        plan("eagle3", eagle3(tmp_path, **changes), target(**of))
    assert [word for word in words if word not in str(error.value)] == []


def test_a_head_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"LlamaForCausalLMEagle3[\s\S]*EagleLlamaForCausalLM"):
        plan("eagle", eagle3(tmp_path / "three"), target())
    one = write_head(tmp_path / "one", eagle_config(), eagle_tensors())
    with pytest.raises(UnsupportedModelError, match=r"LlamaForCausalLM[\s\S]*LlamaForCausalLMEagle3"):
        plan("eagle3", one, target())
    with pytest.raises(ConfigError, match="hidden size"):
        plan("eagle", one, target(hidden_size=64))


def test_a_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = write_config(tmp_path, vocab_size=97)
    with pytest.raises(ConfigError, match=r"97 in the drafter, 96 in the target"):
        plan("draft_model", folder, target(), "dummy")


def test_a_target_without_modules_for_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_nextn_predict_layers"):
        plan("mtp", None, target())
    found = plan("mtp", None, target(num_nextn_predict_layers=2))
    assert [group.layers for group in found.layer_groups] == [(7, 8)]


@pytest.mark.parametrize("method", ["eagle3", "eagle", "draft_model"])
def test_weights_must_be_named_and_be_there(method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model"):
        plan(method, None, target())
    with pytest.raises(ModelNotFoundError, match="no such file"):
        plan(method, tmp_path / "missing", target())


def test_a_pickled_head_is_refused_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"no pickle at all")
    with pytest.raises(LegatoError, match=r"pytorch_model\.bin"):
        Eagle3Drafter.plan(SpeculativeConfig(method="eagle3", num_speculative_tokens=2, model=str(tmp_path)), target())


def test_a_head_serves_positions_past_those_it_was_trained_on(tmp_path: Path) -> None:
    found = plan("eagle3", eagle3(tmp_path, max_position_embeddings=16), target())
    assert found.model is not None
    assert found.model.max_position_embeddings == target().max_position_embeddings
