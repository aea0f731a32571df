"""The shapes that the fused kernels are judged by, and the comparison of every kernel with its reference on a GPU."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from legato.attention.protocol import AttentionLayer
from legato.config.model import ModelConfig, RopeConfig
from legato.kernels import linear as few_rows
from legato.kernels.linear_tilings import GATED_TILINGS, TILINGS, Tiling
from legato.kernels.rms_norm import add_rms_norm, add_rms_norm_reference, rms_norm, rms_norm_reference
from legato.kernels.rotary import normalise_and_rotate, normalise_and_rotate_reference, rotate, rotate_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference
from legato.models.registry import model_class

DEVICE = torch.device("cuda")
DTYPES = (torch.bfloat16, torch.float32)


class Product(NamedTuple):
    """One matrix product of a model."""

    name: str
    out_size: int
    in_size: int
    times: int
    """In one step."""
    gated: bool = False

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Rows and columns of the weights."""
        return (self.out_size * (2 if self.gated else 1), self.in_size)

    @property
    def num_bytes(self) -> int:
        """Size of the weights in a 2-byte dtype."""
        return 2 * math.prod(self.weight_shape)

    @property
    def table(self) -> dict[tuple[int, int, int], Tiling]:
        """The table that this product is looked up in."""
        return GATED_TILINGS if self.gated else TILINGS


PRODUCTS = {
    "llama-3.1-8b": (
        Product("qkv", 6144, 4096, 32),
        Product("output", 4096, 4096, 32),
        Product("gate_up", 14336, 4096, 32, gated=True),
        Product("down", 4096, 14336, 32),
        Product("lm_head", 128256, 4096, 1),
    ),
    "smollm2-135m": (
        Product("qkv", 960, 576, 30),
        Product("output", 576, 576, 30),
        Product("gate_up", 1536, 576, 30, gated=True),
        Product("down", 576, 1536, 30),
        Product("lm_head", 49152, 576, 1),
    ),
}


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
    rows += [model_check(name, dtype) for name in ("LlamaForCausalLM", "Qwen3ForCausalLM") for dtype in DTYPES]
    return rows


def small_checks(width: Width, dtype: torch.dtype) -> Iterator[dict[str, object]]:
    """Check norms, rotation and gate at one row, a few and many."""
    for num_rows in (1, 7, 300):
        hidden, delta = draw(num_rows, width.hidden, dtype=dtype), draw(num_rows, width.hidden, dtype=dtype)
        weight = draw(width.hidden, dtype=dtype)
        label = f"{width.name}, {num_rows} rows, {dtype}"
        yield verdict(f"rms_norm, {label}", rms_norm(hidden, weight, 1e-5), rms_norm_reference(hidden, weight, 1e-5))
        found, expected = (
            torch.stack(norm(hidden.clone(), delta, weight, 1e-5)) for norm in (add_rms_norm, add_rms_norm_reference)
        )
        yield verdict(f"add_rms_norm, {label}", found, expected)
        gate_up = draw(num_rows, 2 * width.inner, dtype=dtype)
        yield verdict(f"silu_mul, {label}", silu_mul(gate_up), silu_mul_reference(gate_up))
        counts = (width.num_heads, width.num_kv_heads)
        packed = draw(num_rows, sum(counts) + counts[1], width.head_dim, dtype=dtype)
        cos, sin = angles(num_rows, width.head_dim, dtype)
        expected = torch.cat([rotate_reference(packed[:, : sum(counts)], cos, sin), packed[:, sum(counts) :]], dim=1)
        rotated = packed.clone()
        rotate(rotated[:, : sum(counts)], cos, sin)
        yield verdict(f"rotate, {label}", rotated, expected)
        arguments = (counts, draw(width.head_dim, dtype=dtype), draw(width.head_dim, dtype=dtype), 1e-6, cos, sin)
        found, expected = (
            torch.cat(both(packed[:, : sum(counts)].clone(), *arguments), dim=1)
            for both in (normalise_and_rotate, normalise_and_rotate_reference)
        )
        yield verdict(f"normalise_and_rotate, {label}", found, expected)


def product_checks(product: Product) -> Iterator[dict[str, object]]:
    """Check a product, with and without bias, at every number of rows that is a boundary."""
    for dtype in DTYPES:
        weight = draw(*product.weight_shape, dtype=dtype, scale=product.in_size**-0.5)
        bias = draw(product.weight_shape[0], dtype=dtype)
        for num_rows in (1, 2, 3, 8, 16, 17):
            inputs = draw(num_rows, product.in_size, dtype=dtype)
            for vector in (None, bias):
                exact = few_rows.linear_reference(
                    inputs.float(), weight.float(), None if vector is None else vector.float()
                )
                if product.gated:
                    found, exact = few_rows.gated_linear(inputs, weight, vector), silu_mul_reference(exact)
                else:
                    place = torch.empty(num_rows, product.out_size, dtype=dtype, device=DEVICE)
                    found = few_rows.linear(inputs, weight, vector, out=place)
                label = f"{product.name} {product.weight_shape}, {num_rows} rows, {dtype}"
                yield verdict(f"{label}{', bias' if vector is not None else ''}", found, exact.to(dtype))


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

    def attend(
        self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Return queries with their keys and values added, [num_tokens, num_heads * head_dim]."""
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


def verdict(name: str, found: torch.Tensor, expected: torch.Tensor, *, roundings: int = 4) -> dict[str, object]:
    """Return how far ``found`` is from ``expected``, relative to its root mean square, and whether that may be."""
    difference = (found.float() - expected.float()).abs()
    # A value's rounding grows with the value: what is large may be off by as much in proportion.
    error = (difference / (expected.float().abs() + expected.float().square().mean().sqrt())).max().item()
    bound = roundings * max(torch.finfo(expected.dtype).eps, 2e-6)
    correct = error <= bound and found.dtype == expected.dtype and found.shape == expected.shape  # a NaN is not
    if not correct:
        print(f"WRONG  {name}: error {error:.2e}, bound {bound:.2e}", flush=True)
    return {"name": name, "error": error, "bound": bound, "correct": correct}


def draw(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Return normal numbers on the GPU."""
    return torch.randn(*shape, dtype=dtype, device=DEVICE) * scale


def angles(num_tokens: int, rotary_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and signed sines as a model looks them up."""
    half = torch.randn(num_tokens, 1, rotary_dim // 2, device=DEVICE)
    cos, sin = half.cos(), half.sin()
    first, second = torch.cat([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1).to(dtype).split(1, dim=1)
    return first, second
