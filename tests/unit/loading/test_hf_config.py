"""config.json in both styles, each family's unsaid facts, and configurations that lie."""

import json
from pathlib import Path
from typing import Any

import pytest

from legato.config.model import ModelConfig
from legato.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from legato.loading.hf_config import parse_hf_config, read_hf_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def parse(architecture: str = "LlamaForCausalLM", **changes: Any) -> ModelConfig:
    return parse_hf_config({**LLAMA, "architectures": [architecture], **changes}, "dir/config.json")


def test_the_two_styles_of_writing_a_config_mean_the_same() -> None:
    old = parse(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}, torch_dtype="bfloat16")
    new = parse(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}, dtype="bfloat16")
    assert old == new
    assert (old.rope.theta, old.rope.kind, old.rope.scaling, old.dtype) == (5e5, "llama3", LLAMA3, "bfloat16")


def test_an_older_spelling_of_the_rope_type_is_read() -> None:
    assert parse(rope_scaling={"type": "linear", "factor": 2.0}).rope.kind == "linear"


def test_yarn_extends_the_length_that_the_config_names() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert parse("Qwen2ForCausalLM", rope_scaling=scaling).max_position_embeddings == 512


def test_qwen2_has_biases_that_its_config_does_not_mention() -> None:
    config = parse("Qwen2ForCausalLM")
    assert (config.qkv_bias, config.output_bias, config.qk_norm, config.head_dim) == (True, False, False, 16)


def test_qwen3_normalises_queries_and_keys() -> None:
    config = parse("Qwen3ForCausalLM", head_dim=32)
    assert (config.qkv_bias, config.qk_norm, config.head_dim, config.q_size, config.kv_size) == (
        False,
        True,
        32,
        128,
        64,
    )


def test_llama_says_its_biases() -> None:
    config = parse(attention_bias=True, mlp_bias=True)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, True, True)


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("MistralForCausalLM", {"sliding_window": 8}, (8, 8, 8, 8)),
        ("MistralForCausalLM", {"sliding_window": None}, (None,) * 4),
        ("LlamaForCausalLM", {"sliding_window": 8}, (None,) * 4),
        ("Qwen2ForCausalLM", {"sliding_window": 8, "use_sliding_window": False}, (None,) * 4),
        (
            "Qwen2ForCausalLM",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 8),
        ),
        (
            "Qwen3ForCausalLM",
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (8, None, 8, None),
        ),
    ],
)
def test_each_layer_has_its_window(architecture: str, changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert parse(architecture, **changes).sliding_windows == windows


def test_end_tokens_come_from_both_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "eos_token_id": 5}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 5], "temperature": 0.6}))
    assert read_hf_config(tmp_path).eos_token_ids == (5, 7)


def test_a_config_without_end_tokens_has_none() -> None:
    assert parse(eos_token_id=None).eos_token_ids == ()


@pytest.mark.parametrize(
    ("changes", "field", "found"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads", "3"),
        ({"hidden_size": 66}, "hidden_size", "66"),
        ({"hidden_size": -64}, "hidden_size", "-64"),
        ({"hidden_size": "64"}, "hidden_size", "'64'"),
        ({"hidden_size": None}, "hidden_size", "missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "0"),
        ({"num_attention_heads": True}, "num_attention_heads", "True"),
        ({"head_dim": 15}, "head_dim", "15"),
        ({"rms_norm_eps": 0}, "rms_norm_eps", "0"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps", "small"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "yes"),
        ({"eos_token_id": 100}, "eos_token_id", "100"),
        ({"eos_token_id": [2, "3"]}, "eos_token_id", "3"),
        ({"rope_theta": -1.0}, "rope_theta", "-1.0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor", "missing"),
        ({"rope_scaling": {"type": "linear", "factor": "two"}}, "factor", "two"),
        ({"rope_scaling": [1]}, "rope_scaling", "[1]"),
        ({"architectures": "LlamaForCausalLM"}, "architectures", "LlamaForCausalLM"),
    ],
)
def test_a_config_that_lies_is_an_error_naming_file_field_expected_and_found(
    changes: dict[str, Any], field: str, found: str
) -> None:
    with pytest.raises(ModelError) as error:
        parse_hf_config({**LLAMA, **changes}, "dir/config.json")
    details = error.value.details
    assert str(details["file"]).startswith("dir/config.json")
    assert details["field"] == field
    assert found in str(details["found"])
    assert details["expected"]


def test_windows_must_be_one_per_layer() -> None:
    changes = {"sliding_window": 8, "use_sliding_window": True, "layer_types": ["sliding_attention"]}
    with pytest.raises(ModelError, match="layer_types"):
        parse("Qwen3ForCausalLM", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, r"GPT2LMHeadModel[\s\S]*LlamaForCausalLM, Mistral"),
        ({"architectures": None}, "none named"),
        ({"rope_scaling": {"rope_type": "longrope"}}, r"longrope[\s\S]*yarn"),
        ({"hidden_act": "swish7"}, r"swish7[\s\S]*silu"),
        ({"dtype": "float8"}, r"float8[\s\S]*bfloat16"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ],
)
def test_what_is_not_supported_is_named_with_what_is(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        parse_hf_config({**LLAMA, **changes}, "config.json")


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_file_that_is_no_json_mapping_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        read_hf_config(tmp_path)


def test_an_absent_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"config\.json is missing"):
        read_hf_config(tmp_path)
