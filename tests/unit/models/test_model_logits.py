"""Each family's logits are transformers' own, from the files that transformers writes."""

from pathlib import Path

import gguf
import pytest
import torch
from dense_context import DenseContext, logits_of
from tiny_models import LLAMA3_ROPE, save, tiny, write_gguf

from legato.kvcache.spec import FullAttentionSpec, SlidingWindowSpec
from legato.loading.model_config import read_model_config
from legato.loading.source import resolve_model
from legato.models.build import build_model
from legato.models.causal_lm import CausalLM

TOKEN_IDS = [1, *torch.randint(3, 96, (39,), generator=torch.Generator().manual_seed(1)).tolist()]

FAMILIES = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases everywhere": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, head size of its own": ("Llama", {"head_dim": 8}),
    "llama, gelu": ("Llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "llama, llama3 rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama, linear rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
    "llama, dynamic rope": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}}),
    "llama, yarn rope": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral, window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2, window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3, attention bias": ("Qwen3", {"head_dim": 16, "attention_bias": True}),
    "qwen3, window": (
        "Qwen3",
        {"head_dim": 16, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    ),
}


def load(path: Path, dtype: torch.dtype = torch.float32) -> CausalLM:
    source = resolve_model(str(path))
    model, report = build_model(source, read_model_config(source), dtype, "cpu")
    assert report.unexpected == ()
    return model


def logits_of_transformers(model, token_ids: list[int] = TOKEN_IDS) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).logits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    name, changes = FAMILIES[family]
    theirs = tiny(name, **changes)
    ours = load(save(theirs, tmp_path))
    torch.testing.assert_close(logits_of(ours, TOKEN_IDS), logits_of_transformers(theirs), atol=1e-4, rtol=0)


def test_a_sharded_checkpoint_gives_the_same_logits(tmp_path: Path) -> None:
    theirs = tiny("Qwen3", head_dim=16)
    ours = load(save(theirs, tmp_path, shard="40KB"))
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    torch.testing.assert_close(logits_of(ours, TOKEN_IDS), logits_of_transformers(theirs), atol=1e-4, rtol=0)


def test_token_by_token_equals_all_at_once(tmp_path: Path) -> None:
    ours = load(save(tiny("Mistral", sliding_window=7), tmp_path))
    context, rows = DenseContext(), []
    with torch.inference_mode():
        for position, token_id in enumerate(TOKEN_IDS):
            rows.append(ours.compute_logits(ours(torch.tensor([token_id]), torch.tensor([position]), context)))
    torch.testing.assert_close(torch.cat(rows), logits_of(ours, TOKEN_IDS), atol=3e-5, rtol=0)


def test_logits_are_written_where_the_caller_asks(tmp_path: Path) -> None:
    ours = load(save(tiny("Llama", tie_word_embeddings=True), tmp_path))
    hidden, out = torch.randn(3, 64), torch.empty(3, 96)
    with torch.inference_mode():
        assert ours.compute_logits(hidden, out).data_ptr() == out.data_ptr()
        torch.testing.assert_close(out, ours.compute_logits(hidden))


def test_bfloat16_weights_are_converted_while_they_stream(tmp_path: Path) -> None:
    theirs = tiny("Llama")
    ours = load(save(theirs, tmp_path), torch.bfloat16)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    expected = theirs.model.layers[1].mlp.up_proj.weight.to(torch.bfloat16)
    torch.testing.assert_close(ours.model.layers[1].mlp.gate_up_proj.weight[96:], expected, atol=0, rtol=0)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_a_gguf_file_gives_the_logits_of_its_dequantised_weights(kind: str, tmp_path: Path) -> None:
    stored_as = gguf.GGMLQuantizationType[kind]
    theirs = tiny("Llama", tie_word_embeddings=True)
    ours = load(write_gguf(theirs, tmp_path / "tiny.gguf", stored_as, "llama"))
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.dim() == 2:
                stored = gguf.quantize(parameter.numpy(), stored_as)
                parameter.copy_(torch.from_numpy(gguf.dequantize(stored, stored_as).copy()))
    torch.testing.assert_close(logits_of(ours, TOKEN_IDS), logits_of_transformers(theirs), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("family", "name", "changes"),
    [
        ("Llama", "llama", {"attention_bias": True}),
        ("Mistral", "llama", {"sliding_window": None}),
        ("Qwen2", "qwen2", {}),
        ("Qwen3", "qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    ],
)
def test_every_family_can_come_from_a_gguf_file(family: str, name: str, changes: dict, tmp_path: Path) -> None:
    theirs = tiny(family, **changes)
    ours = load(write_gguf(theirs, tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.F32, name))
    torch.testing.assert_close(logits_of(ours, TOKEN_IDS), logits_of_transformers(theirs), atol=1e-4, rtol=0)


def test_layers_are_grouped_by_the_window_they_read(tmp_path: Path) -> None:
    changes = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    ours = load(save(tiny("Qwen2", **changes), tmp_path))
    full, windowed = ours.layer_groups(ours.config)
    assert (full.layers, full.spec) == ((0,), FullAttentionSpec(num_kv_heads=2, head_dim=16))
    assert (windowed.layers, windowed.spec) == ((1, 2), SlidingWindowSpec(num_kv_heads=2, head_dim=16, window=5))
    assert [layer.window for layer in ours.attention_layers] == [None, 5, 5]
