"""The shapes that the fused kernels are judged by, and the comparison of every kernel with its reference on a GPU."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from product_checks import DEVICE, DTYPES, draw, product_checks, verdict
from product_list import PRODUCTS
from round_kernel_checks import round_checks

from legato.attention.protocol import AttentionLayer
from legato.config.model import ModelConfig, RopeConfig
from legato.kernels.argmax import argmax, argmax_reference
from legato.kernels.head_inputs import Normed, head_inputs, head_inputs_reference
from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm, rms_norm_reference
from legato.kernels.rotary import HeadNorm, Rotation, rotate_and_store, rotate_and_store_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference
from legato.models.registry import model_class


class Width(NamedTuple):
    """What the small operations see of a model."""

    name: str
    hidden: int
    inner: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


WIDTHS = (
    Width("llama-3.1-8b", 4096, 14336, 32, 8, 128),
    Width("smollm2-135m", 576, 1536, 9, 3, 64),
    Width("qwen2.5-7b", 3584, 18944, 28, 4, 128),
)


def check_all() -> list[dict[str, object]]:
    """Compare every operation with its reference; return a row for each."""
    rows = [row for dtype in DTYPES for width in WIDTHS for row in small_checks(width, dtype)]
    rows += [row for products in PRODUCTS.values() for product in products for row in product_checks(product)]
    rows += [row for dtype in DTYPES for row in argmax_checks(dtype)]
    rows += round_checks()
    rows += [model_check(name, dtype) for name in ("LlamaForCausalLM", "Qwen3ForCausalLM") for dtype in DTYPES]
    return rows


def small_checks(width: Width, dtype: torch.dtype) -> Iterator[dict[str, object]]:
    """Check norms, rotation and gate at one row, a few and many."""
    for num_rows in (1, 7, 300):
        hidden, weight = draw(num_rows, width.hidden, dtype=dtype), draw(width.hidden, dtype=dtype)
        label = f"{width.name}, {num_rows} rows, {dtype}"
        yield verdict(f"rms_norm, {label}", rms_norm(hidden, weight, 1e-5), rms_norm_reference(hidden, weight, 1e-5))
        token_ids = torch.arange(num_rows, device=hidden.device) * 3 % 300
        embedding = Normed(draw(300, width.hidden, dtype=dtype), Norm(weight, 1e-5))
        states, table = Normed(hidden, Norm(weight, 1e-6)), draw(300, 2, width.head_dim, dtype=dtype)
        forms = (form(token_ids, embedding, states, token_ids, table) for form in (head_inputs, head_inputs_reference))
        for found, expected in zip(*forms, strict=True):
            yield verdict(f"head_inputs, {label}", found, expected)
        gate_up = draw(num_rows, 2 * width.inner, dtype=dtype)
        yield verdict(f"silu_mul, {label}", silu_mul(gate_up), silu_mul_reference(gate_up))
        for norm in (None, head_norm(width, dtype)):
            step = heads_to_store(width, num_rows, dtype, norm)
            found, expected = (stored_by(form, *step) for form in (rotate_and_store, rotate_and_store_reference))
            kind = "rotate_and_store" if norm is None else "rotate_and_store, normalised"
            # Products of 2-byte numbers are exact in float32, so that without a norm both forms round alike.
            exact = norm is None and dtype is not torch.float32
            yield verdict(f"{kind}, {label}", found, expected, roundings=0 if exact else 4)


def argmax_checks(dtype: torch.dtype) -> Iterator[dict[str, object]]:
    """Check that the same index is found as torch finds: of numbers, of many equal ones, and of what is not one."""
    for num_rows in (1, 3, 64, 256, 1100):
        for size in (49152, 128256):
            values = draw(num_rows, size, dtype=dtype)
            values[0, [size // 3, size - 1]] = 50.0
            values[-1, [size // 2, size - 2]] = float("nan") if num_rows > 1 else 60.0
            for _ in range(2):  # the second time over the counters that the first one left
                found, expected = argmax(values), argmax_reference(values)
                yield verdict(f"argmax, {num_rows} x {size}, {dtype}", found.float(), expected.float(), roundings=0)


StepToStore = tuple[torch.Tensor, Rotation, torch.Tensor, torch.Tensor, torch.Tensor]
"""Arguments of ``rotate_and_store``."""


def head_norm(width: Width, dtype: torch.dtype) -> HeadNorm:
    """Return weights of queries and keys."""
    query_weight, key_weight = draw(2, width.head_dim, dtype=dtype)
    return HeadNorm(query_weight=query_weight, key_weight=key_weight, eps=1e-6)


def heads_to_store(width: Width, num_rows: int, dtype: torch.dtype, norm: HeadNorm | None) -> StepToStore:
    """Return heads of ``num_rows`` tokens, their rotation, and caches of zeros with a slot of each token."""
    heads = draw(num_rows, width.num_heads + 2 * width.num_kv_heads, width.head_dim, dtype=dtype)
    cos, sin = angles(num_rows, width.head_dim, dtype)
    cache = torch.zeros(2, 1 + num_rows, 1, width.num_kv_heads, width.head_dim, dtype=dtype, device=DEVICE)
    slots = 1 + torch.randperm(num_rows, device=DEVICE)  # slot 0 stays empty
    return heads, Rotation(cos=cos, sin=sin, norm=norm), cache[0], cache[1], slots


def stored_by(form: Callable[..., torch.Tensor], *step: Any) -> torch.Tensor:
    """Return queries, and the whole of both caches, as ``form`` leaves them, in one row."""
    heads, rotation, key_cache, value_cache, slots = step
    key_cache, value_cache = key_cache.clone(), value_cache.clone()
    query = form(heads, rotation, key_cache, value_cache, slots)
    return torch.cat([query.flatten(), key_cache.flatten(), value_cache.flatten()])


def config_of(width: Width, *, architecture: str, vocab_size: int, num_layers: int) -> ModelConfig:
    """Return the configuration of a model of ``width``."""
    return ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=width.hidden,
        intermediate_size=width.inner,
        num_layers=num_layers,
        num_heads=width.num_heads,
        num_kv_heads=width.num_kv_heads,
        head_dim=width.head_dim,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        tie_word_embeddings=True,
    )


def randomise(model: torch.nn.Module) -> None:
    """Draw weights that keep activations near unit scale."""
    for parameter in model.parameters():
        parameter.data.normal_(0.0, parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 1.0)


class NoAttention:
    """Gives the queries back, so that only the model's own operations are checked."""

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Return queries with their keys and values added, [num_tokens, num_heads * head_dim]."""
        cache = heads.new_empty(2, 1, heads.shape[0], layer.num_kv_heads, layer.head_dim)
        query = rotate_and_store(heads, rotation, *cache, torch.arange(heads.shape[0], device=heads.device))
        key, value = cache[:, 0]
        shared_by = layer.num_heads // layer.num_kv_heads
        return (query + (key + value).repeat_interleave(shared_by, 1)).flatten(1)


def model_check(architecture: str, dtype: torch.dtype) -> dict[str, object]:
    """Compare a small model on the GPU with the same weights in float32 on the CPU."""
    config = config_of(WIDTHS[1], architecture=architecture, vocab_size=49152, num_layers=2)
    ours = model_class(architecture)(config, dtype, DEVICE)
    plain = model_class(architecture)(config, torch.float32, torch.device("cpu"))
    randomise(ours)
    for parameter, copy in zip(ours.parameters(), plain.parameters(), strict=True):
        copy.data.copy_(parameter.data)
    found, expected = [], []
    for num_tokens in (1, 4, 40):
        token_ids = torch.arange(num_tokens) * 97 + 5
        positions = torch.arange(num_tokens) + 3
        hidden = ours(token_ids.to(DEVICE), positions.to(DEVICE), NoAttention())
        found.append(ours.compute_logits(hidden))
        expected.append(plain.compute_logits(plain(token_ids, positions, NoAttention())).to(DEVICE))
    # Each of a dozen roundings on the way adds its own error: the bound is wider than for one operation.
    return verdict(f"{architecture}, {dtype}", torch.cat(found), torch.cat(expected).to(dtype), roundings=24)


def angles(num_tokens: int, rotary_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and signed sines as a model looks them up."""
    half = torch.randn(num_tokens, 1, rotary_dim // 2, device=DEVICE)
    cos, sin = half.cos(), half.sin()
    first, second = torch.cat([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1).to(dtype).split(1, dim=1)
    return first, second
