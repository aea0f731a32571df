"""Comparison of the few-row products with float32, on a GPU where there is one."""

from collections.abc import Iterator

import torch
from product_list import Product

from legato.kernels import linear as few_rows
from legato.kernels.linear import Norm

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")
DTYPES = (torch.bfloat16, torch.float32)


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
        return few_rows.add_linear_reference(residual.to(torch.float32, copy=True), *factors)
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
