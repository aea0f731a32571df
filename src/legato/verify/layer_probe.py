"""Which layer is the first to differ. Owns hooks that copy what each layer gives, eagerly and inside graphs.

Only used once a difference was found: the copies cost time, and a graph must be captured with them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from legato.models.causal_lm import CausalLM
from legato.sampling.near_ties import tolerance
from legato.verify.tolerance import first_row_apart


class LayerProbe:
    """The latest embedding, and output of each layer, of a model, for up to ``max_num_tokens`` tokens."""

    def __init__(self, model: CausalLM, max_num_tokens: int) -> None:
        self._layers = list(model.model.layers)
        weight = model.model.embed_tokens.weight
        self._outputs = torch.zeros(  # [1 + num_layers, max_num_tokens, hidden_size]
            1 + len(self._layers), max_num_tokens, weight.shape[1], dtype=weight.dtype, device=weight.device
        )

    @contextmanager
    def installed(self) -> Iterator["LayerProbe"]:
        """Copy outputs while the context is open; graphs captured in it copy at each replay."""
        embedded, *outputs = self._outputs
        hooks = [self._layers[0].register_forward_pre_hook(_copy_input_to(embedded))]
        hooks += [
            layer.register_forward_hook(_copy_output_to(output))
            for layer, output in zip(self._layers, outputs, strict=True)
        ]
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def outputs(self, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return what the latest step's first ``num_tokens`` tokens were at each layer, in order."""
        names = ["embedding", *(f"layer {index}" for index in range(len(self._layers)))]
        return {name: output[:num_tokens].clone() for name, output in zip(names, self._outputs, strict=True)}


def first_difference(
    expected: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], dtype: str | None
) -> tuple[str, int] | None:
    """Return the first name, and its first row, where two results differ; None: nowhere.

    ``dtype``: values may be apart by its tolerance; None: by nothing.
    """
    for name, tensor in expected.items():
        if torch.equal(tensor, given[name]):
            continue
        if tensor.dim() == 1:
            tensor, other = tensor[:, None], given[name][:, None]
        else:
            other = given[name]
        allowed = 0.0 if dtype is None else tolerance(dtype, tensor.abs().max().item())
        row = first_row_apart(tensor, other, allowed)
        if row is not None:
            return name, row
    return None


def _copy_input_to(buffer: torch.Tensor) -> Callable[[torch.nn.Module, Any], None]:
    """Return a hook that keeps the residual before a layer adds to it."""

    def copy(layer: torch.nn.Module, arguments: Any) -> None:
        buffer[: arguments[0].shape[0]].copy_(arguments[0])

    return copy


def _copy_output_to(buffer: torch.Tensor) -> Callable[[torch.nn.Module, Any, torch.Tensor], None]:
    def copy(layer: torch.nn.Module, arguments: Any, output: torch.Tensor) -> None:
        buffer[: output.shape[0]].copy_(output)

    return copy
