"""EAGLE-3's head computes what its paper says, from the files that are published."""

import json
from pathlib import Path

import pytest
import torch
from dense_context import DenseContext
from tiny_heads import DRAFT_VOCAB, HIDDEN, VOCAB, eagle3_config, eagle3_tensors, write_head

from legato.errors import ModelError, ModelNotFoundError, UnsupportedModelError, WeightsError
from legato.layers.embedding import Embedding
from legato.loading.draft_head_config import read_draft_head_config
from legato.loading.source import resolve_model
from legato.models.build_head import build_eagle3_head
from legato.models.eagle3 import Eagle3Head

ARCHITECTURES = ("LlamaForCausalLMEagle3",)
NUM_TOKENS = 11


def load(folder: Path, load_format: str = "auto") -> Eagle3Head:
    source = resolve_model(str(folder), load_format)
    config = read_draft_head_config(source.path, ARCHITECTURES)
    head, report = build_eagle3_head(source, config, 7, torch.float32, torch.device("cpu"))
    assert report.unexpected == ()
    return head


def normed(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return hidden / (hidden.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary embedding by complex numbers; ``heads`` [num_tokens, num_heads, 8]."""
    angles = positions[:, None].double() / 10000.0 ** (torch.arange(4).double() / 4)
    pairs = torch.complex(*heads.double().split(4, dim=-1)) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def layer_by_hand(
    tensors: dict[str, torch.Tensor], embedded: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """The layer over one whole sequence, in float64 and without any code of ours."""
    weight = {name.removeprefix("midlayer."): tensor.double() for name, tensor in tensors.items()}
    inputs = torch.cat(
        [normed(embedded, weight["input_layernorm.weight"]), normed(hidden, weight["hidden_norm.weight"])], dim=-1
    )
    query, key, value = (
        (inputs @ weight[f"self_attn.{part}_proj.weight"].T).unflatten(-1, (-1, 8)) for part in ("q", "k", "v")
    )
    query, key = turned(query, positions), turned(key, positions)
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    scores = torch.einsum("qhd,khd->hqk", query, key) / 8**0.5
    future = torch.ones(len(positions), len(positions), dtype=torch.bool).triu(1)
    attended = torch.einsum("hqk,khd->qhd", scores.masked_fill(future, float("-inf")).softmax(-1), value).flatten(1)
    hidden = hidden + attended @ weight["self_attn.o_proj.weight"].T
    inner = normed(hidden, weight["post_attention_layernorm.weight"])
    gate, up = inner @ weight["mlp.gate_proj.weight"].T, inner @ weight["mlp.up_proj.weight"].T
    return hidden + (gate * gate.sigmoid() * up) @ weight["mlp.down_proj.weight"].T


@torch.inference_mode()
def test_states_and_logits_are_those_of_the_formula(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    head = load(write_head(tmp_path, eagle3_config(), tensors))
    embedding = Embedding(VOCAB, HIDDEN, dtype=torch.float32, device=torch.device("cpu"))
    embedding.weight.normal_(generator=torch.Generator().manual_seed(5))
    next_ids, positions = torch.arange(NUM_TOKENS) * 17 % VOCAB, torch.arange(3, 3 + NUM_TOKENS)
    auxiliary = torch.randn(NUM_TOKENS, 3 * HIDDEN, generator=torch.Generator().manual_seed(6))
    hidden = head(embedding, next_ids, head.combine(auxiliary), positions, DenseContext())
    embedded = embedding.weight[next_ids]
    first = auxiliary.double() @ tensors["fc.weight"].double().T
    expected = layer_by_hand(tensors, embedded.double(), first, positions)
    torch.testing.assert_close(hidden.double(), expected, atol=1e-4, rtol=1e-4)
    logits = normed(expected, tensors["norm.weight"].double()) @ tensors["lm_head.weight"].double().T
    torch.testing.assert_close(head.compute_logits(hidden).double(), logits, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_drafts_are_tokens_of_the_target(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    head = load(write_head(tmp_path, eagle3_config(), tensors))
    hidden = torch.randn(50, HIDDEN)
    likeliest = head.compute_logits(hidden).argmax(-1)
    drafts = head.draft(hidden)
    torch.testing.assert_close(drafts, likeliest + tensors["d2t"][likeliest])
    assert tensors["t2d"][drafts].all()
    assert len(set(drafts.tolist())) > 5


def test_a_published_checkpoint_fills_every_parameter(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    head = load(write_head(tmp_path, eagle3_config(), tensors))
    assert head.embed_tokens is None
    held = dict(head.named_parameters())
    torch.testing.assert_close(held["fc.weight"], tensors["fc.weight"], atol=0, rtol=0)
    packed = [tensors[f"midlayer.self_attn.{part}_proj.weight"] for part in ("q", "k", "v")]
    torch.testing.assert_close(held["midlayer.self_attn.qkv_proj.weight"], torch.cat(packed), atol=0, rtol=0)
    torch.testing.assert_close(head.d2t, tensors["d2t"], atol=0, rtol=0)


def test_an_embedding_in_the_checkpoint_is_the_heads_own(tmp_path: Path) -> None:
    tensors = {**eagle3_tensors(), "embed_tokens.weight": torch.randn(VOCAB, HIDDEN)}
    head = load(write_head(tmp_path, eagle3_config(), tensors))
    assert head.embed_tokens is not None
    torch.testing.assert_close(head.embed_tokens.weight.data, tensors["embed_tokens.weight"], atol=0, rtol=0)


def test_a_checkpoint_that_numbers_its_layer_is_the_same_head(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    one = load(write_head(tmp_path / "one", eagle3_config(), tensors))
    other = load(write_head(tmp_path / "other", eagle3_config(), renamed))
    for (name, ours), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_head_of_the_whole_vocabulary_needs_no_offsets(tmp_path: Path) -> None:
    tensors = eagle3_tensors() | {"lm_head.weight": torch.randn(VOCAB, HIDDEN)}
    for name in ("d2t", "t2d"):
        del tensors[name]
    head = load(write_head(tmp_path, eagle3_config(draft_vocab_size=None), tensors))
    torch.testing.assert_close(head.target_ids, torch.arange(VOCAB))


def test_dummy_weights_draft_all_over_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    head = load(tmp_path, "dummy")
    assert len(set(head.target_ids.tolist())) == DRAFT_VOCAB
    assert int(head.target_ids[-1]) > VOCAB - 4
    assert all(parameter.abs().sum() > 0 for parameter in head.parameters())


@pytest.mark.parametrize("missing", ["fc.weight", "midlayer.hidden_norm.weight", "lm_head.weight", "d2t"])
def test_a_missing_tensor_is_named(missing: str, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in eagle3_tensors().items() if name != missing}
    with pytest.raises(WeightsError, match=missing):
        load(write_head(tmp_path, eagle3_config(), tensors))


def test_offsets_that_lead_out_of_the_vocabulary_are_refused(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    tensors["d2t"] = tensors["d2t"] + VOCAB
    with pytest.raises(WeightsError, match="none of the target's"):
        load(write_head(tmp_path, eagle3_config(), tensors))


def test_offsets_that_are_no_whole_numbers_are_refused(tmp_path: Path) -> None:
    tensors = eagle3_tensors()
    tensors["d2t"] = tensors["d2t"].float()
    with pytest.raises(WeightsError, match="whole numbers"):
        load(write_head(tmp_path, eagle3_config(), tensors))


def test_a_weight_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    tensors = eagle3_tensors() | {"lm_head.weight": torch.randn(DRAFT_VOCAB + 1, HIDDEN)}
    with pytest.raises(WeightsError, match=rf"\({DRAFT_VOCAB}, {HIDDEN}\)[\s\S]*\({DRAFT_VOCAB + 1}, {HIDDEN}\)"):
        load(write_head(tmp_path, eagle3_config(), tensors))


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelNotFoundError, match=r"pytorch_model\.bin[\s\S]*never opened"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, UnsupportedModelError, "LlamaForCausalLMEagle3"),
        ({"draft_vocab_size": VOCAB + 1}, ModelError, "draft_vocab_size"),
        ({"norm_before_residual": True}, UnsupportedModelError, "norm_before_residual"),
        ({"eagle_aux_hidden_state_layer_ids": "2"}, ModelError, "eagle_aux_hidden_state_layer_ids"),
    ],
)
def test_a_description_that_cannot_be_is_refused(
    changes: dict[str, object], error: type[ModelError], words: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config(**changes)))
    with pytest.raises(error, match=words):
        read_draft_head_config(tmp_path, ARCHITECTURES)
