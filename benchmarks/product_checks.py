"""The matrix products that the few-row kernels are judged by, and their comparison with float32 on a GPU."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from legato.kernels import linear as few_rows
from legato.kernels.linear import Norm
from legato.kernels.linear_tilings import GATED_TILINGS, NORM_TILINGS, TILINGS, Tiling

DEVICE = torch.device("cuda")
DTYPES = (torch.bfloat16, torch.float32)


class Product(NamedTuple):
    """One matrix product of a model."""

    name: str
    out_size: int
    in_size: int
    times: int
    """In one step."""
    normed: bool = False
    """Behind a norm."""
    gated: bool = False
    """Behind a norm, and before a gate."""
    added: bool = False
    """To the residual."""

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Rows and columns of the weights."""
        return (self.out_size * (2 if self.gated else 1), self.in_size)

    @property
    def num_bytes(self) -> int:
        """Size of the weights in a 2-byte dtype."""
        return 2 * math.prod(self.weight_shape)

    @property
    def table_name(self) -> str:
        """The name of the table that this product is looked up in."""
        return "GATED_TILINGS" if self.gated else "NORM_TILINGS" if self.normed else "TILINGS"

    @property
    def table(self) -> dict[tuple[int, int, int], Tiling]:
        """The table that this product is looked up in."""
        return {"GATED_TILINGS": GATED_TILINGS, "NORM_TILINGS": NORM_TILINGS, "TILINGS": TILINGS}[self.table_name]


PRODUCTS = {
    "llama-3.1-8b": (
        Product("qkv", 6144, 4096, 32, normed=True),
        Product("output", 4096, 4096, 32, added=True),
        Product("gate_up", 14336, 4096, 32, normed=True, gated=True),
        Product("down", 4096, 14336, 32, added=True),
        Product("lm_head", 128256, 4096, 1),
    ),
    "llama-3.1-8b-eagle3": (
        Product("fc", 4096, 12288, 1),
        Product("qkv", 6144, 8192, 3),
        Product("lm_head", 32000, 4096, 3, normed=True),
    ),
    "smollm2-135m": (
        Product("qkv", 960, 576, 30, normed=True),
        Product("output", 576, 576, 30, added=True),
        Product("gate_up", 1536, 576, 30, normed=True, gated=True),
        Product("down", 576, 1536, 30, added=True),
        Product("lm_head", 49152, 576, 1),
    ),
}


def product_checks(product: Product) -> Iterator[dict[str, object]]:
    """Check a product, with and without bias, at every number of rows that is a boundary, and twice."""
    for dtype in DTYPES:
        weight = draw(*product.weight_shape, dtype=dtype, scale=product.in_size**-0.5)
        bias, norm = draw(product.weight_shape[0], dtype=dtype), Norm(draw(product.in_size, dtype=dtype), 1e-5)
        for num_rows in (1, 2, 3, 8, 16, 17, 32, 64, 65):
            inputs = draw(num_rows, product.in_size, dtype=dtype)
            residual = draw(num_rows, product.out_size, dtype=dtype)
            for vector in (None, bias):
                label = f"{product.name} {product.weight_shape}, {num_rows} rows, {dtype}"
                label += ", bias" if vector is not None else ""
                found = _product(product, inputs, weight, vector, norm, residual.clone())
                exact = _exact_product(product, inputs, weight, vector, norm, residual)
                yield verdict(label, found, exact.to(dtype), roundings=6)
                again = _product(product, inputs, weight, vector, norm, residual.clone())
                yield verdict(f"{label}, again", again, found, roundings=0)


def _product(
    product: Product,
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    norm: Norm,
    residual: torch.Tensor,
) -> torch.Tensor:
    """Compute ``product`` as a model does; ``residual`` is where it is added or written."""
    if product.gated:
        return few_rows.gated_linear(inputs, weight, bias, norm=norm)
    if product.added:
        return few_rows.add_linear(residual, inputs, weight, bias)
    return few_rows.linear(inputs, weight, bias, norm=norm if product.normed else None, out=residual)


def _exact_product(
    product: Product,
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    norm: Norm,
    residual: torch.Tensor,
) -> torch.Tensor:
    """Compute ``product`` in float32 with torch alone."""
    factors = inputs.float(), weight.float(), None if bias is None else bias.float()
    exact_norm = Norm(norm.weight.float(), norm.eps)
    if product.gated:
        return few_rows.gated_linear_reference(*factors, norm=exact_norm)
    if product.added:
        return few_rows.add_linear_reference(residual.float(), *factors)
    return few_rows.linear_reference(*factors, norm=exact_norm if product.normed else None)


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
