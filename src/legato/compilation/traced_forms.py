"""What the compiler sees instead of a kernel of ours. Owns the table: dispatching kernel -> its plain formula.

A kernel of ours is opaque to a compiler, and the references beside the kernels are written to take few operations:
in place, over constants, by the number of rows. Here stand the formulas themselves, free of side effects, so that the
compiler may fuse them with their neighbours. Outside of a trace nothing changes.

A kernel that overwrites an argument also returns it, and its form gives a new tensor instead: a model reads what is
returned.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional

from legato.kernels.linear import Norm, add_linear, gated_linear, linear
from legato.kernels.rms_norm import rms_norm
from legato.kernels.silu_mul import silu_mul
from legato.kernels.token_lookups import token_lookups, token_lookups_reference


def _linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    norm: Norm | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if norm is not None:
        inputs = _rms_norm(inputs, norm.weight, norm.eps)
    product = functional.linear(inputs, weight, bias)
    return product if out is None else out.copy_(product)


def _add_linear(
    residual: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return residual + functional.linear(inputs, weight, bias)


def _gated_linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, norm: Norm
) -> torch.Tensor:
    return _silu_mul(_linear(inputs, weight, bias, norm=norm))


def _silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)  # [num_tokens, size] each
    return functional.silu(gate) * up


def _rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    exact = hidden.float()
    factor = torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps)
    return (exact * factor).to(hidden.dtype) * weight


TRACED_FORMS: dict[Callable[..., Any], Callable[..., Any]] = {
    linear: _linear,
    add_linear: _add_linear,
    gated_linear: _gated_linear,
    silu_mul: _silu_mul,
    rms_norm: _rms_norm,
    token_lookups: token_lookups_reference,
}


@cache
def substitute_traced_forms() -> None:
    """Tell PyTorch's tracer, once per process, to follow the formulas; it refuses a form of another signature."""
    for kernel, form in TRACED_FORMS.items():
        torch.compiler.substitute_in_graph(kernel)(form)
