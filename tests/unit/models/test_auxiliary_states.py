"""Inner states of a target are left where a drafter reads them, and cost nothing where none does."""

import pytest
import torch
from dense_context import DenseContext
from tiny_engine import CONFIG
from torch.utils._python_dispatch import TorchDispatchMode

from legato.loading.dummy import fill_with_random
from legato.loading.hf_config import parse_hf_config
from legato.models.causal_lm import AuxiliaryStates, CausalLM
from legato.models.registry import model_class

IDS, POSITIONS = torch.arange(10) * 7 % 96, torch.arange(10)


def model_of(architecture: str) -> CausalLM:
    config = parse_hf_config({**CONFIG, "architectures": [architecture], "num_hidden_layers": 4}, "config.json")
    model = model_class(architecture)(config, torch.float32, torch.device("cpu"))
    fill_with_random(model.named_parameters(), seed=0)
    return model


class Counted(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_the_inputs_of_the_named_layers_are_left_side_by_side(architecture: str) -> None:
    model = model_of(architecture)
    seen: dict[int, torch.Tensor] = {}
    for index, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda _, given, index=index: seen.update({index: given[0].clone()}))
    out = torch.full((10, 3 * 32), float("nan"))
    model(IDS, POSITIONS, DenseContext(), AuxiliaryStates(layers=(0, 1, 3), out=out))
    torch.testing.assert_close(out, torch.cat([seen[0], seen[1], seen[3]], dim=1), atol=0, rtol=0)
    assert not torch.equal(seen[0], seen[1])


@torch.no_grad()
def test_hidden_states_are_the_same_with_and_without_them() -> None:
    model = model_of("LlamaForCausalLM")
    given = AuxiliaryStates(layers=(1, 2), out=torch.empty(10, 64))
    with Counted() as plain:
        expected = model(IDS, POSITIONS, DenseContext())
    with Counted() as watched:
        hidden = model(IDS, POSITIONS, DenseContext(), given)
    assert torch.equal(hidden, expected)
    assert watched.count == plain.count + 4, "a place and a copy for each layer, and nothing else"
