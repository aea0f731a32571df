"""Rotary embedding: frequencies as transformers computes them, rotation as the paper defines it."""

import math
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from legato.config.model import ModelConfig, RopeConfig
from legato.kernels.rotary import rotate
from legato.layers.rotary import RotaryEmbedding
from legato.layers.rotary_frequencies import rotary_frequencies

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
SCALINGS = [
    ("linear", 1e4, {"factor": 2.5}),
    ("llama3", 5e5, {"factor": 32.0, **LLAMA3}),
    ("llama3", 5e5, {"factor": 8.0, **LLAMA3}),
    ("yarn", 1e6, YARN),
    ("yarn", 1e4, {**YARN, "beta_fast": 16, "beta_slow": 2}),
    ("yarn", 1e4, {**YARN, "truncate": False}),
    ("yarn", 1e4, {**YARN, "attention_factor": 1.5}),
    ("yarn", 1e4, {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}),
]


def config(rope: RopeConfig, *, positions: int = 64, head_dim: int = 16) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=8,
        hidden_size=16,
        intermediate_size=16,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=head_dim,
        max_position_embeddings=positions,
        rms_norm_eps=1e-5,
        rope=rope,
    )


def turn(rope: RotaryEmbedding, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    rotation = rope(positions)
    return rotate(heads, rotation.cos, rotation.sin)


def embedding(rope: RopeConfig, **changes: int) -> RotaryEmbedding:
    return RotaryEmbedding(config(rope, **changes), dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.parametrize(("kind", "theta", "scaling"), SCALINGS)
def test_scaled_frequencies_equal_those_of_transformers(kind: str, theta: float, scaling: dict[str, Any]) -> None:
    theirs = transformers.LlamaConfig(
        hidden_size=128,
        num_attention_heads=1,
        head_dim=128,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": kind, "rope_theta": theta, **scaling},
    )
    expected, expected_factor = ROPE_INIT_FUNCTIONS[kind](theirs, torch.device("cpu"))
    found, factor = rotary_frequencies(RopeConfig(theta=theta, kind=kind, scaling=scaling), 128)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)
    assert factor == pytest.approx(expected_factor)


def test_each_pair_turns_by_position_times_its_frequency() -> None:
    rope = embedding(RopeConfig(theta=100.0))
    heads = torch.randn(3, 2, 16)
    positions = torch.tensor([0, 1, 37])
    turned = turn(rope, heads, positions)
    for token, position in enumerate(positions.tolist()):
        for pair in range(8):
            angle = position * 100.0 ** (-pair / 8)
            first, second = heads[token, :, pair], heads[token, :, pair + 8]
            torch.testing.assert_close(
                turned[token, :, pair], first * math.cos(angle) - second * math.sin(angle), atol=1e-5, rtol=1e-5
            )
            torch.testing.assert_close(
                turned[token, :, pair + 8], second * math.cos(angle) + first * math.sin(angle), atol=1e-5, rtol=1e-5
            )


def test_only_the_distance_of_two_positions_counts() -> None:
    rope = embedding(RopeConfig())
    query, key = torch.randn(1, 1, 16), torch.randn(1, 1, 16)

    def score(query_at: int, key_at: int) -> float:
        turned_query = turn(rope, query, torch.tensor([query_at]))
        turned_key = turn(rope, key, torch.tensor([key_at]))
        return (turned_query * turned_key).sum().item()

    assert score(9, 4) == pytest.approx(score(60, 55), abs=1e-4)


def test_dimensions_beyond_the_rotary_ones_stay() -> None:
    rope = embedding(RopeConfig(rotary_dim=8))
    heads = torch.randn(4, 2, 16)
    turned = turn(rope, heads, torch.arange(4) + 5)
    torch.testing.assert_close(turned[..., 8:], heads[..., 8:], atol=0, rtol=0)
    assert not torch.allclose(turned[..., :8], heads[..., :8])


def test_the_table_is_computed_in_float32_whatever_it_is_stored_in() -> None:
    shape = config(RopeConfig(), positions=5000)
    exact = RotaryEmbedding(shape, dtype=torch.float32, device=torch.device("cpu")).table
    stored = RotaryEmbedding(shape, dtype=torch.bfloat16, device=torch.device("cpu")).table
    torch.testing.assert_close(stored, exact.to(torch.bfloat16), atol=0, rtol=0)
