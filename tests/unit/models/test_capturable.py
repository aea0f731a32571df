"""What a graph needs of a model: no host reads, the same operations whatever the values, and few of them."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from dense_context import DenseContext
from tiny_models import save, tiny
from torch.utils._python_dispatch import TorchDispatchMode

from legato.attention.protocol import AttentionLayer
from legato.kernels.rotary import Rotation, rotate_and_store
from legato.kvcache.storage import LayerCache
from legato.loading.model_config import read_model_config
from legato.loading.source import resolve_model
from legato.models.build import build_model
from legato.models.causal_lm import CausalLM

HOST_READS = {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten.equal.default"}


class Operations(TorchDispatchMode):
    """Counts what reaches the device, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        inputs = [value for value in args if isinstance(value, torch.Tensor)]
        made = {output.untyped_storage().data_ptr() for output in outputs if isinstance(output, torch.Tensor)}
        if not made <= {value.untyped_storage().data_ptr() for value in inputs} or operation._schema.is_mutable:
            self.counts[str(operation)] += 1
        return result


class NoAttention:
    """Turns and stores heads as every step does, but leaves attention out, whose operations are the backend's."""

    def __init__(self) -> None:
        self.caches: dict[int, LayerCache] = {}
        self.slots = torch.arange(16)

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        if layer.index not in self.caches:
            key, value = torch.zeros(2, 1, 16, layer.num_kv_heads, layer.head_dim)
            self.caches[layer.index] = LayerCache(key=key, value=value)
        cache, num_tokens = self.caches[layer.index], heads.shape[0]
        query = rotate_and_store(heads, rotation, cache.key, cache.value, self.slots[:num_tokens])
        return query.reshape(num_tokens, -1)


def load(folder: Path, family: str, **changes: object) -> CausalLM:
    source = resolve_model(str(save(tiny(family, **changes), folder)))
    return build_model(source, read_model_config(source), torch.float32, "cpu")[0]


def operations(model: CausalLM, token_ids: list[int], positions: list[int]) -> Counter[str]:
    feed = torch.tensor(token_ids), torch.tensor(positions)
    context = NoAttention()
    with torch.inference_mode():
        model(*feed, context)  # as before every capture: constants are made in the first step
        with Operations() as seen:
            model.compute_logits(model(*feed, context))
    return seen.counts


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_no_value_is_read_by_the_host_and_none_changes_what_runs(family: str, tmp_path: Path) -> None:
    model = load(tmp_path, family)
    first, second = operations(model, [1, 2], [0, 1]), operations(model, [90, 0], [127, 5])
    assert not HOST_READS & first.keys()
    assert first == second


def test_a_llama_layer_is_twenty_seven_operations_and_attention(tmp_path: Path) -> None:
    counts = [
        operations(load(tmp_path / str(layers), "Llama", num_hidden_layers=layers), [1], [0]) for layers in (2, 3)
    ]
    # 2 norms of 4; 4 products of 3 (a float32 row is doubled), two of them added; 3 to turn, 2 to store, 2 to gate.
    assert counts[1].total() - counts[0].total() == 27


def test_a_packed_batch_gives_each_row_what_it_gets_alone(tmp_path: Path) -> None:
    model = load(tmp_path, "Qwen3", head_dim=16)
    with torch.inference_mode():
        together = model(torch.tensor([5, 6, 7]), torch.tensor([3, 9, 0]), NoAttention())
        for row, (token_id, position) in enumerate([(5, 3), (6, 9), (7, 0)]):
            alone = model(torch.tensor([token_id]), torch.tensor([position]), NoAttention())
            torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


def test_parameters_keep_their_addresses(tmp_path: Path) -> None:
    model = load(tmp_path, "Llama")
    before = [parameter.data_ptr() for parameter in model.parameters()]
    with torch.inference_mode():
        model(torch.tensor([1, 2, 3]), torch.arange(3), DenseContext())
    assert [parameter.data_ptr() for parameter in model.parameters()] == before
