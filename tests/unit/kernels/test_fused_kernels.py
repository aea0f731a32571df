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

from legato.kernels import head_inputs_triton, rms_norm_triton, silu_mul_triton, token_lookups_triton
from legato.kernels.head_inputs import Normed, head_inputs_reference
from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm_reference
from legato.kernels.silu_mul import silu_mul_reference
from legato.kernels.token_lookups import token_lookups_reference

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
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 576), (2, 100)])
def test_what_a_draft_head_reads_equals_its_reference(rows: int, size: int, dtype: torch.dtype) -> None:
    embedding, token_ids = draw(11, size, dtype=dtype, scale=0.1), torch.tensor([10, 0, 7])[:rows]
    hidden = draw(rows, 2 * size, dtype=dtype, scale=3.0)[:, size:]
    norms = Norm(draw(size, dtype=dtype), 1e-5), Norm(draw(size, dtype=dtype), 1e-2)
    positions, table = torch.tensor([4, 19, 0])[:rows], draw(20, 2, 12, dtype=dtype)
    given = token_ids, Normed(embedding, norms[0]), Normed(hidden, norms[1]), positions, table
    (paired, angles), (expected, expected_angles) = (
        head_inputs_triton.head_inputs(*given),
        head_inputs_reference(*given),
    )
    assert_close(paired, expected)
    assert torch.equal(angles, expected_angles)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "rotary_dim"), [(64, 16), (576, 64), (12, 96)])
def test_what_is_looked_up_for_tokens_are_rows_of_the_tables(size: int, rotary_dim: int, dtype: torch.dtype) -> None:
    embedding, angles = draw(11, size, dtype=dtype), draw(20, 2, rotary_dim, dtype=dtype)
    given = torch.tensor([10, 0, 7]), embedding, torch.tensor([4, 19, 0]), angles
    found, expected = token_lookups_triton.token_lookups(*given), token_lookups_reference(*given)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [48, 1024, 1536])
def test_the_gate_equals_its_reference(size: int, dtype: torch.dtype) -> None:
    gate_up = draw(3, 2 * size, dtype=dtype, scale=2.0)
    assert_close(silu_mul_triton.silu_mul(gate_up), silu_mul_reference(gate_up))
