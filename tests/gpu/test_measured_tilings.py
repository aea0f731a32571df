"""Every product that has a tiling of its own, on the GPU that it was measured for, against float32."""

import pytest
import torch

from legato.device.protocol import Device
from legato.kernels.linear import (
    Norm,
    add_linear,
    gated_linear,
    gated_linear_reference,
    linear,
    linear_reference,
)
from legato.kernels.linear_measured import GATED_TILINGS, NORM_TILINGS, TILINGS

Shape = tuple[int, int, int]
ROUNDINGS = 6
"""Of the inputs behind a norm, of the product, of the gate; twice as many as there are."""


def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device="cuda") * scale).bfloat16()


def check(found: torch.Tensor, exact: torch.Tensor) -> None:
    size = exact.abs() + exact.square().mean().sqrt()
    assert ((found.float() - exact).abs() / size).max() <= ROUNDINGS * torch.finfo(torch.bfloat16).eps


def drawn(shape: Shape, *, halves: int = 1) -> tuple[torch.Tensor, torch.Tensor, Norm]:
    """Inputs of as many rows as their class holds but one, weights and a norm."""
    torch.manual_seed(0)
    num_rows, out_size, in_size = shape
    inputs = draw(max(1, num_rows - 1), in_size)
    return inputs, draw(halves * out_size, in_size, scale=in_size**-0.5), Norm(draw(in_size), 1e-5)


@pytest.mark.parametrize("shape", TILINGS)
def test_products_are_right_alone_and_added_to_a_residual(shape: Shape, device: Device) -> None:
    inputs, weight, _ = drawn(shape)
    exact = linear_reference(inputs.float(), weight.float())
    check(linear(inputs, weight), exact)
    residual = draw(*exact.shape)
    added = exact + residual.float()
    check(add_linear(residual, inputs, weight), added)


@pytest.mark.parametrize("shape", NORM_TILINGS)
def test_products_behind_a_norm_are_right_and_the_same_again(shape: Shape, device: Device) -> None:
    inputs, weight, norm = drawn(shape)
    found = linear(inputs, weight, norm=norm)
    check(found, linear_reference(inputs.float(), weight.float(), norm=Norm(norm.weight.float(), norm.eps)))
    assert torch.equal(linear(inputs, weight, norm=norm), found), "sums over splits have one order"


@pytest.mark.parametrize("shape", GATED_TILINGS)
def test_gated_products_are_right_and_a_row_does_not_depend_on_those_behind_it(shape: Shape, device: Device) -> None:
    inputs, weight, norm = drawn(shape, halves=2)
    found = gated_linear(inputs, weight, norm=norm)
    check(found, gated_linear_reference(inputs.float(), weight.float(), norm=Norm(norm.weight.float(), norm.eps)))
    others = torch.cat([inputs[:-1], draw(1, inputs.shape[1])])
    assert torch.equal(gated_linear(others, weight, norm=norm)[:-1], found[:-1])
