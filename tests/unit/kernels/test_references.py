"""What the fused operations promise on every device, tested where torch computes them."""

import pytest
import torch
from torch.nn import functional

from legato.kernels.linear import Norm, add_linear, gated_linear, linear
from legato.kernels.linear_measured import GATED_TILINGS, NORM_TILINGS, TILINGS
from legato.kernels.linear_tilings import MAX_ROWS, row_class
from legato.kernels.rms_norm import rms_norm


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_may_be_written_to_a_given_place(bias: bool) -> None:
    inputs, weight, vector = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5) if bias else None
    place = torch.empty(3, 5)
    assert linear(inputs, weight, vector, out=place) is place
    torch.testing.assert_close(place, functional.linear(inputs, weight, vector))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_a_product_is_added_to_the_residual_in_its_place(rows: int, bias: bool) -> None:
    inputs, weight, vector = torch.randn(rows, 8), torch.randn(5, 8), torch.randn(5) if bias else None
    residual = torch.randn(rows, 5)
    expected = residual + functional.linear(inputs, weight, vector)
    assert add_linear(residual, inputs, weight, vector) is residual
    torch.testing.assert_close(residual, expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_behind_a_norm_leaves_its_inputs_as_they_are(bias: bool) -> None:
    inputs, weight, vector = torch.randn(3, 8), torch.randn(5, 8), torch.randn(5) if bias else None
    norm, kept = Norm(torch.randn(8), 1e-5), inputs.clone()
    expected = functional.linear(rms_norm(inputs, *norm), weight, vector)
    torch.testing.assert_close(linear(inputs, weight, vector, norm=norm), expected)
    assert torch.equal(inputs, kept)


def test_a_gated_product_gates_its_second_half_by_its_first() -> None:
    inputs, weight, bias = torch.randn(3, 8), torch.randn(10, 8), torch.randn(10)
    norm = Norm(torch.randn(8), 1e-5)
    gate, up = functional.linear(rms_norm(inputs, *norm), weight, bias).chunk(2, dim=-1)
    torch.testing.assert_close(gated_linear(inputs, weight, bias, norm=norm), functional.silu(gate) * up)


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16)])
def test_rows_are_classed_by_the_next_power_of_two(rows: int, expected: int) -> None:
    assert row_class(rows) == expected


@pytest.mark.parametrize("table", [TILINGS, NORM_TILINGS, GATED_TILINGS])
def test_every_tiling_fits_the_gpu_that_it_was_measured_on(table) -> None:
    found = {"normed": table is not TILINGS, "gated": table is GATED_TILINGS}
    for (rows, _, _), tiling in table.items():
        assert tiling.on_plain_cores(rows) or tiling.shared_memory_bytes(**found) <= 227 << 10


@pytest.mark.parametrize("table", [TILINGS, NORM_TILINGS, GATED_TILINGS])
def test_every_tiling_can_be_compiled(table) -> None:
    for (rows, _, in_size), tiling in table.items():
        assert rows <= MAX_ROWS and row_class(rows) == rows
        assert all(block & (block - 1) == 0 for block in (tiling.block_out, tiling.block_in, tiling.block_rows))
        assert tiling.block_in < 2 * in_size
        if tiling.on_plain_cores(rows):
            assert tiling.block_in >= 8 and (rows == 1 or tiling.block_rows == rows)
        else:
            assert min(tiling.block_in, tiling.block_rows) >= 16 and tiling.block_out >= 8
