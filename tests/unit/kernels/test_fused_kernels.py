"""Fused kernels against their torch references, in Triton's interpreter: what runs on a GPU, on CPU tensors."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

if not torch.accelerator.is_available():  # other tests in this process compile their kernels for a GPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles kernels for a GPU in this process", allow_module_level=True)

from legato.kernels import linear_triton, rms_norm_triton, rotary_triton, silu_mul_triton
from legato.kernels.linear import gated_linear_reference, linear_reference
from legato.kernels.linear_tilings import Tiling
from legato.kernels.rms_norm import add_rms_norm_reference, rms_norm_reference
from legato.kernels.rotary import normalise_and_rotate_reference, rotate_reference
from legato.kernels.silu_mul import silu_mul_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Within two roundings of the dtype, and of sums in another order."""
    unit = torch.finfo(expected.dtype).eps
    scale = expected.float().abs().max().item()
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.float(), expected.float(), rtol=2 * unit, atol=max(2 * unit * scale, 1e-6))


def draw(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape) * scale).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 576), (2, 100)])
def test_the_norm_equals_its_reference(rows: int, size: int, dtype: torch.dtype) -> None:
    hidden, weight = draw(rows, size, dtype=dtype, scale=3.0), draw(size, dtype=dtype)
    kept = hidden.clone()
    assert_close(rms_norm_triton.rms_norm(hidden, weight, 1e-5), rms_norm_reference(hidden, weight, 1e-5))
    assert torch.equal(hidden, kept)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_norm_takes_rows_that_lie_apart(dtype: torch.dtype) -> None:
    hidden, weight = draw(4, 96, dtype=dtype)[:, :64], draw(64, dtype=dtype)
    assert_close(rms_norm_triton.rms_norm(hidden, weight, 1e-6), rms_norm_reference(hidden, weight, 1e-6))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 576)])
def test_a_sum_is_stored_and_normalised_in_one_pass(rows: int, size: int, dtype: torch.dtype) -> None:
    residual, delta, weight = (draw(rows, size, dtype=dtype), draw(rows, size, dtype=dtype), draw(size, dtype=dtype))
    expected_sum, expected = add_rms_norm_reference(residual.clone(), delta, weight, 1e-5)
    found = rms_norm_triton.add_rms_norm(residual, delta, weight, 1e-5)
    assert_close(residual, expected_sum)  # the interpreter rounds bfloat16 toward zero
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [48, 1024, 1536])
def test_the_gate_equals_its_reference(size: int, dtype: torch.dtype) -> None:
    gate_up = draw(3, 2 * size, dtype=dtype, scale=2.0)
    assert_close(silu_mul_triton.silu_mul(gate_up), silu_mul_reference(gate_up))


def angles(num_tokens: int, rotary_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines as a model's table gives them: views of one tensor."""
    half = torch.randn(num_tokens, 1, rotary_dim // 2)
    cos, sin = half.cos(), half.sin()
    table = torch.cat([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1).to(dtype)
    first, second = table.split(1, dim=1)
    return first, second


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (16, 16), (80, 80), (64, 32)])
def test_heads_turn_where_they_lie_and_their_neighbours_stay(
    head_dim: int, rotary_dim: int, dtype: torch.dtype
) -> None:
    packed = draw(3, 17, head_dim, dtype=dtype)
    kept, heads = packed.clone(), packed[:, :12]
    cos, sin = angles(3, rotary_dim, dtype)
    expected = rotate_reference(heads, cos, sin)
    found = rotary_triton.rotate(heads, cos, sin)
    assert found.data_ptr() == packed.data_ptr()
    assert_close(found, expected)
    assert torch.equal(packed[:, 12:], kept[:, 12:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_kind_of_head_is_normalised_by_its_own_weight(dtype: torch.dtype) -> None:
    packed = draw(2, 9, 32, dtype=dtype, scale=4.0)
    heads, weights = packed[:, :7], (draw(32, dtype=dtype), draw(32, dtype=dtype))
    cos, sin = angles(2, 32, dtype)
    query, key = normalise_and_rotate_reference(heads, (5, 2), *weights, 1e-6, cos, sin)
    rotary_triton.normalise_and_rotate(heads, 5, *weights, 1e-6, cos, sin)
    assert_close(heads, torch.cat([query, key], dim=1))


# The interpreter multiplies bfloat16 tiles as the integers that hold them, so that only single rows can be of it.
LINEAR_CASES = [
    (rows, dtype, *case)
    for rows, dtype in [(1, torch.bfloat16), *((rows, torch.float16) for rows in (1, 2, 5, 16))]
    for case in [
        (64, 128, Tiling(16, 64, 4, 1)),  # tiles fill the matrix
        (50, 100, Tiling(16, 64, 4, 2)),  # neither width does
    ]
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "dtype", "out_size", "in_size", "tiling"), LINEAR_CASES)
def test_a_product_of_few_rows_equals_its_reference(
    rows: int, dtype: torch.dtype, out_size: int, in_size: int, tiling: Tiling, bias: bool
) -> None:
    inputs, weight = draw(rows, in_size, dtype=dtype), draw(out_size, in_size, dtype=dtype, scale=in_size**-0.5)
    vector = draw(out_size, dtype=dtype) if bias else None
    around = torch.full((rows + 1, out_size + 3), 7.0, dtype=dtype)
    linear_triton.linear(inputs, weight, vector, around[:rows, :out_size], tiling)
    expected = linear_reference(inputs.float(), weight.float(), None if vector is None else vector.float())
    assert_close(around[:rows, :out_size], expected.to(dtype))
    assert (around[rows:] == 7.0).all() and (around[:, out_size:] == 7.0).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "dtype", "size", "in_size", "tiling"), LINEAR_CASES)
def test_a_gated_product_equals_product_and_gate(
    rows: int, dtype: torch.dtype, size: int, in_size: int, tiling: Tiling, bias: bool
) -> None:
    inputs, weight = draw(rows, in_size, dtype=dtype), draw(2 * size, in_size, dtype=dtype, scale=in_size**-0.5)
    vector = draw(2 * size, dtype=dtype) if bias else None
    found = torch.empty(rows, size, dtype=dtype)
    linear_triton.gated_linear(inputs, weight, vector, found, tiling)
    expected = gated_linear_reference(inputs.float(), weight.float(), None if vector is None else vector.float())
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(found.float(), expected, rtol=4 * unit, atol=8 * unit)


def test_rows_of_a_product_may_lie_apart() -> None:
    dtype = torch.float16
    inputs, weight = draw(4, 96, dtype=dtype)[:, :64], draw(32, 64, dtype=dtype)
    found = torch.empty(4, 32, dtype=dtype)
    linear_triton.linear(inputs, weight, None, found, Tiling(16, 64, 4, 1))
    assert_close(found, (inputs.float() @ weight.float().T).to(dtype))
