"""The gated feed-forward layer."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from legato.config.model import ModelConfig
from legato.kernels.linear import gated_linear
from legato.layers.linear import Linear, PackedLinear
from legato.layers.norm import RMSNorm

_Activation = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, _Activation] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class GatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` (arXiv 2002.05202); gate and up are one product."""

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up_proj = PackedLinear(hidden, parts, bias=bias, dtype=dtype, device=device)
        self.down_proj = Linear(inner, hidden, bias=bias, dtype=dtype, device=device)
        self.activation = None if config.hidden_act == "silu" else ACTIVATIONS[config.hidden_act]

    def forward(self, residual: torch.Tensor, norm: RMSNorm) -> torch.Tensor:
        """Add to ``residual`` [num_tokens, hidden_size] in place what its ``norm`` is mapped to; return it."""
        return self.down_proj.add_to(residual, self._gated(residual, norm))

    def _gated(self, hidden: torch.Tensor, norm: RMSNorm) -> torch.Tensor:
        """Return ``activation(gate(x)) * up(x)`` [num_tokens, intermediate_size]; silu has a kernel of its own."""
        if self.activation is None:
            return gated_linear(hidden, self.gate_up_proj.weight, self.gate_up_proj.bias, norm=norm.terms)
        gate, up = self.gate_up_proj(hidden, norm).chunk(2, dim=-1)  # [num_tokens, intermediate_size] each
        return self.activation(gate).mul_(up)
