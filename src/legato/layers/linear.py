"""Matrix products. Owns the packing of several projections of one input into one product."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from legato.kernels.linear import add_linear, linear
from legato.layers.norm import RMSNorm


class Linear(nn.Module):
    """``x Wᵀ + b``."""

    bias: nn.Parameter | None

    def __init__(self, in_size: int, out_size: int, *, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        weight = torch.empty(out_size, in_size, dtype=dtype, device=device)  # [out_size, in_size]
        self.weight = nn.Parameter(weight, requires_grad=False)
        vector = nn.Parameter(torch.empty(out_size, dtype=dtype, device=device), requires_grad=False) if bias else None
        self.register_parameter("bias", vector)

    def forward(self, inputs: torch.Tensor, norm: RMSNorm | None = None) -> torch.Tensor:
        """Map ``inputs`` [num_rows, in_size], normalised by ``norm`` if given, to [num_rows, out_size]."""
        return linear(inputs, self.weight, self.bias, norm=None if norm is None else norm.terms)

    def add_to(self, residual: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Add what ``inputs`` [num_rows, in_size] map to, to ``residual`` [num_rows, out_size] in place; return it."""
        return add_linear(residual, inputs, self.weight, self.bias)


class PackedLinear(Linear):
    """Several projections of one input as one product: their weights lie below each other in one matrix.

    ``parts`` names the projections, as checkpoints do, with the width of each, in the order of the output.
    """

    def __init__(
        self, in_size: int, parts: Mapping[str, int], *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(in_size, sum(parts.values()), bias=bias, dtype=dtype, device=device)
        self.parts = dict(parts)

    def part_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each projection's parameters as views into the packed ones: (``q_proj.weight``, [width, in_size])."""
        start = 0
        for part, width in self.parts.items():
            for name, parameter in self.named_parameters(recurse=False):
                yield f"{part}.{name}", parameter.data[start : start + width]
            start += width
