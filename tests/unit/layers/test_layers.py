"""Norm, packed products, MLP and head against their formulas."""

import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from legato.config.model import ModelConfig, RopeConfig
from legato.layers.embedding import Embedding, LMHead
from legato.layers.linear import PackedLinear
from legato.layers.mlp import ACTIVATIONS, GatedMLP
from legato.layers.norm import RMSNorm
from legato.loading.hf_config import ACTIVATIONS as READABLE_ACTIVATIONS

CPU = torch.device("cpu")


def randomise(module: torch.nn.Module) -> None:
    for parameter in module.parameters():
        parameter.data.normal_()


def test_the_norm_divides_by_the_root_of_the_mean_square() -> None:
    norm = RMSNorm(12, 1e-3, dtype=torch.float32, device=CPU)
    randomise(norm)
    hidden = torch.randn(5, 12)
    expected = hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight
    torch.testing.assert_close(norm(hidden), expected)


def test_the_norm_takes_the_mean_of_low_precision_values_in_float32() -> None:
    norm = RMSNorm(4096, 1e-6, dtype=torch.bfloat16, device=CPU)
    norm.weight.data.fill_(1.0)
    hidden = torch.full((1, 4096), 100.0, dtype=torch.bfloat16)
    assert norm(hidden).unique().tolist() == [1.0]


@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_product_equals_its_parts_side_by_side(bias: bool) -> None:
    packed = PackedLinear(8, {"q_proj": 6, "k_proj": 2, "v_proj": 3}, bias=bias, dtype=torch.float32, device=CPU)
    parts = dict(packed.part_parameters())
    assert next(iter(parts)) == "q_proj.weight"
    assert [parts[f"{name}.weight"].shape[0] for name in ("q_proj", "k_proj", "v_proj")] == [6, 2, 3]
    for part in parts.values():
        part.normal_()
    inputs = torch.randn(4, 8)
    expected = torch.cat(
        [
            functional.linear(inputs, parts[f"{name}.weight"], parts.get(f"{name}.bias"))
            for name in ("q_proj", "k_proj", "v_proj")
        ],
        dim=-1,
    )
    torch.testing.assert_close(packed(inputs), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_mlp_normalises_gates_projects_down_and_adds(activation: str) -> None:
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8,
        hidden_size=6,
        intermediate_size=10,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=6,
        max_position_embeddings=8,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        hidden_act=activation,
        mlp_bias=True,
    )
    mlp = GatedMLP(config, dtype=torch.float32, device=CPU)
    randomise(mlp)
    norm = RMSNorm(6, 1e-5, dtype=torch.float32, device=CPU)
    randomise(norm)
    residual = torch.randn(3, 6)
    gate, up = mlp.gate_up_proj(norm(residual)).chunk(2, -1)
    expected = residual + mlp.down_proj(ACTIVATIONS[activation](gate) * up)
    found = mlp(residual, norm)
    assert found is residual
    torch.testing.assert_close(found, expected)


def test_every_activation_that_a_config_may_name_exists() -> None:
    assert set(ACTIVATIONS) == set(READABLE_ACTIVATIONS)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_shares_the_embedding_only_when_tied(tied: bool) -> None:
    embedding = Embedding(10, 4, dtype=torch.float32, device=CPU)
    head = LMHead(embedding, tied=tied)
    randomise(embedding)
    if not tied:
        randomise(head)
    assert (head.weight is embedding.weight) == tied
    hidden = torch.randn(2, 4)
    torch.testing.assert_close(head(hidden), hidden @ head.weight.T)


def test_what_a_model_takes_is_known_without_a_library_of_symbols() -> None:
    code = """
import sys, torch
from legato.layers.embedding import Embedding, LMHead
head = LMHead(Embedding(10, 4, dtype=torch.bfloat16, device=torch.device("meta")), tied=False)
assert head.weight.nbytes == 80 and head.weight.is_meta
assert "sympy" not in sys.modules, "imported for an empty tensor"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
