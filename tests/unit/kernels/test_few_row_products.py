"""Products of few rows against their torch references, in Triton's interpreter: what runs on a GPU, on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import linear_triton
from legato.kernels.linear import Norm, add_linear_reference, gated_linear_reference, linear_reference
from legato.kernels.linear_tilings import Tiling
from legato.kernels.split_workspace import shared_workspace


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def draw(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape) * scale).to(dtype)


# The interpreter multiplies bfloat16 tiles as the integers that hold them, so that only plain cores can be given it.
LINEAR_CASES = [
    (1, torch.bfloat16, 64, 128, Tiling(16, 64, 4, 1)),
    (1, torch.float16, 50, 100, Tiling(16, 64, 4, 2)),  # tiles fill the matrix in neither direction
    (1, torch.bfloat16, 64, 100, Tiling(4, 128, 4, 1)),  # all columns at once
    (1, torch.float16, 50, 64, Tiling(4, 64, 4, 1)),
    (2, torch.bfloat16, 64, 128, Tiling(16, 64, 4, 1, block_rows=2)),
    (3, torch.float16, 50, 100, Tiling(2, 64, 4, 1, block_rows=4)),  # a row is missing
    (4, torch.bfloat16, 50, 100, Tiling(4, 128, 4, 1, block_rows=4)),  # all columns at once
    (3, torch.bfloat16, 64, 1000, Tiling(2, 1024, 4, 1, block_rows=4)),  # inputs are read once for all columns
    (2, torch.float16, 64, 128, Tiling(16, 64, 4, 1)),
    (5, torch.float16, 50, 100, Tiling(16, 64, 4, 2)),
    (16, torch.float16, 64, 128, Tiling(32, 64, 4, 2)),
    (33, torch.float16, 50, 100, Tiling(16, 32, 4, 2, block_rows=32)),
    (64, torch.float16, 32, 64, Tiling(16, 64, 4, 2, block_rows=64)),
    (40, torch.float16, 32, 64, Tiling(16, 64, 4, 2, block_rows=16)),
    (5, torch.float16, 32, 256, Tiling(16, 32, 4, 2, splits=4)),
    (20, torch.float16, 50, 100, Tiling(16, 32, 4, 2, block_rows=16, splits=3)),  # the last share is the smallest
    (3, torch.float16, 32, 64, Tiling(16, 64, 4, 2, splits=2)),  # one share is empty
    (16, torch.float16, 50, 100, Tiling(16, 64, 4, 2, norm="weights")),
    (40, torch.float16, 32, 256, Tiling(16, 32, 4, 2, block_rows=32, splits=3, norm="weights")),
    (5, torch.float16, 100, 104, Tiling(64, 32, 4, 2, splits=3, left="weights")),  # the last tiles reach beyond the end
    (40, torch.float16, 128, 128, Tiling(64, 32, 4, 2, block_rows=64, left="weights")),
]
linear_cases = pytest.mark.parametrize(("rows", "dtype", "out_size", "in_size", "tiling"), LINEAR_CASES)


def assert_product_is_close(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Within the roundings of inputs behind a norm, of a product, and of a gate."""
    unit = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.float(), exact, rtol=4 * unit, atol=8 * unit)


def draw_product(
    rows: int, out_size: int, in_size: int, dtype: torch.dtype, *, bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Norm]:
    """Inputs, weight, bias and norm of a product near unit scale."""
    inputs, weight = draw(rows, in_size, dtype=dtype), draw(out_size, in_size, dtype=dtype, scale=in_size**-0.5)
    return inputs, weight, draw(out_size, dtype=dtype) if bias else None, Norm(draw(in_size, dtype=dtype), 1e-5)


def exact(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [None if tensor is None else tensor.float() for tensor in tensors]


@pytest.mark.parametrize(("bias", "with_norm"), [(True, False), (False, False), (True, True), (False, True)])
@linear_cases
def test_a_product_of_few_rows_equals_its_reference(
    rows: int, dtype: torch.dtype, out_size: int, in_size: int, tiling: Tiling, bias: bool, with_norm: bool
) -> None:
    inputs, weight, vector, norm = draw_product(rows, out_size, in_size, dtype, bias=bias)
    around = torch.full((rows + 1, out_size + 3), 7.0, dtype=dtype)
    found = around[:rows, :out_size]
    linear_triton.linear(inputs, weight, vector, found, tiling, norm=norm if with_norm else None)
    exact_norm = Norm(norm.weight.float(), norm.eps) if with_norm else None
    assert_product_is_close(found, linear_reference(*exact(inputs, weight, vector), norm=exact_norm))
    assert (around[rows:] == 7.0).all() and (around[:, out_size:] == 7.0).all()


@pytest.mark.parametrize("bias", [True, False])
@linear_cases
def test_a_gated_product_equals_norm_product_and_gate(
    rows: int, dtype: torch.dtype, out_size: int, in_size: int, tiling: Tiling, bias: bool
) -> None:
    inputs, weight, vector, norm = draw_product(rows, 2 * out_size, in_size, dtype, bias=bias)
    found = torch.empty(rows, out_size, dtype=dtype)
    linear_triton.linear(inputs, weight, vector, found, tiling, norm=norm, gated=True)
    exact_norm = Norm(norm.weight.float(), norm.eps)
    assert_product_is_close(found, gated_linear_reference(*exact(inputs, weight, vector), norm=exact_norm))


@pytest.mark.parametrize("bias", [True, False])
@linear_cases
def test_a_product_is_added_where_it_belongs(
    rows: int, dtype: torch.dtype, out_size: int, in_size: int, tiling: Tiling, bias: bool
) -> None:
    inputs, weight, vector, _ = draw_product(rows, out_size, in_size, dtype, bias=bias)
    residual = draw(rows, out_size, dtype=dtype)
    expected = add_linear_reference(residual.float(), *exact(inputs, weight, vector))
    linear_triton.linear(inputs, weight, vector, residual, tiling, added=True)
    assert_product_is_close(residual, expected)


def test_a_split_product_can_be_repeated() -> None:
    inputs, weight, vector, norm = draw_product(5, 64, 256, torch.float16, bias=True)
    found = [torch.empty(5, 64, dtype=torch.float16) for _ in range(3)]
    for out in found:
        linear_triton.linear(inputs, weight, vector, out, Tiling(16, 32, 4, 2, splits=4), norm=norm)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not shared_workspace(inputs.device).counters.any()


@pytest.mark.parametrize("block_rows", [4, 16])
def test_rows_of_a_product_may_lie_apart(block_rows: int) -> None:
    dtype = torch.float16
    inputs, weight = draw(4, 96, dtype=dtype)[:, :64], draw(32, 64, dtype=dtype, scale=0.125)
    found = torch.empty(4, 40, dtype=dtype)[:, :32]
    linear_triton.linear(inputs, weight, None, found, Tiling(16, 64, 4, 1, block_rows=block_rows))
    assert_product_is_close(found, inputs.float() @ weight.float().T)


def test_on_plain_cores_a_row_says_the_same_whatever_the_others_are() -> None:
    inputs, weight, _, norm = draw_product(4, 64, 1000, torch.bfloat16, bias=False)
    alone, among = (torch.empty(rows, 64, dtype=torch.bfloat16) for rows in (3, 4))
    for out in (alone, among):
        linear_triton.linear(inputs[: len(out)], weight, None, out, Tiling(2, 1024, 4, 1, block_rows=4), norm=norm)
    assert torch.equal(alone, among[:3])
