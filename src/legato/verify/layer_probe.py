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
    """The latest output of the embedding and of each layer of a model, for up to ``max_num_tokens`` tokens."""

    def __init__(self, model: CausalLM, max_num_tokens: int) -> None:
        self._modules = [model.model.embed_tokens, *model.model.layers]
        weight = model.model.embed_tokens.weight
        self._outputs = torch.zeros(  # [1 + num_layers, max_num_tokens, hidden_size]
            len(self._modules), max_num_tokens, weight.shape[1], dtype=weight.dtype, device=weight.device
        )

    @contextmanager
    def installed(self) -> Iterator["LayerProbe"]:
        """Copy outputs while the context is open; graphs captured in it copy at each replay."""
        hooks = [
            module.register_forward_hook(_copy_to(output))
            for module, output in zip(self._modules, self._outputs, strict=True)
        ]
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def outputs(self, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return what the latest step's first ``num_tokens`` tokens were at each layer, in order."""
        names = ["embedding", *(f"layer {index}" for index in range(len(self._modules) - 1))]
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


def _copy_to(buffer: torch.Tensor) -> Callable[[torch.nn.Module, Any, Any], None]:
    def copy(module: torch.nn.Module, arguments: Any, output: Any) -> None:
        # A layer gives the sum so far and what is still to be added to it; the next layer overwrites the first.
        given = output if isinstance(output, torch.Tensor) else output[0]
        target = buffer[: given.shape[0]]
        target.copy_(given)
        if not isinstance(output, torch.Tensor):
            target.add_(output[1])

    return copy
