"""What the fused operations promise on every device, tested where torch computes them."""

import pytest
import torch
from torch.nn import functional

from legato.kernels.linear import gated_linear, linear
from legato.kernels.linear_tilings import GATED_TILINGS, MAX_ROWS, TILINGS, row_class
from legato.kernels.rms_norm import add_rms_norm, rms_norm


def test_the_residual_is_the_sum_and_keeps_its_place() -> None:
    residual, delta, weight = torch.randn(3, 8), torch.randn(3, 8), torch.randn(8)
    expected = residual + delta
    new_residual, normed = add_rms_norm(residual, delta, weight, 1e-5)
    assert new_residual is residual
    assert torch.equal(residual, expected)
    assert torch.equal(normed, rms_norm(expected, weight, 1e-5))


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_may_be_written_to_a_given_place(bias: bool) -> None:
    inputs, weight, vector = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5) if bias else None
    place = torch.empty(3, 5)
    assert linear(inputs, weight, vector, out=place) is place
    torch.testing.assert_close(place, functional.linear(inputs, weight, vector))


def test_a_gated_product_gates_its_second_half_by_its_first() -> None:
    inputs, weight, bias = torch.randn(3, 8), torch.randn(10, 8), torch.randn(10)
    gate, up = functional.linear(inputs, weight, bias).chunk(2, dim=-1)
    torch.testing.assert_close(gated_linear(inputs, weight, bias), functional.silu(gate) * up)


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16)])
def test_rows_are_classed_by_the_next_power_of_two(rows: int, expected: int) -> None:
    assert row_class(rows) == expected


@pytest.mark.parametrize("table", [TILINGS, GATED_TILINGS])
def test_every_tiling_can_be_compiled(table) -> None:
    for (rows, _, in_size), tiling in table.items():
        assert rows <= MAX_ROWS and row_class(rows) == rows
        assert all(block & (block - 1) == 0 for block in (tiling.block_out, tiling.block_in))
        assert tiling.block_in < 2 * in_size
        assert rows == 1 or tiling.block_in >= 16
