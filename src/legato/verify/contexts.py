"""Contexts for made-up batches that the model itself computed. Owns their tokens, keys and values.

Kernels that sum in another order are compared over what the model is made for. Noise for keys and values tells nothing
there: a trained model turns a rounding of one bit over it into other logits altogether.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.engine.core import EngineCore
from legato.flow.sampling_params import SamplingParams
from legato.kvcache.storage import LayerCache
from legato.runner.synthetic import SyntheticBatch, SyntheticLimits
from legato.verify.made_up import as_scheduled, only

_NUM_BLOCKS = 2
"""That a made-up request has at most before the step."""


class ComputedContexts:
    """The beginnings of some sequences with their keys and values; each made-up request goes on from one of them."""

    def __init__(self, core: EngineCore, sequences: Sequence[Sequence[int]]) -> None:
        """Compute ``sequences`` of token ids eagerly; short ones are repeated. No request may be in flight."""
        self._caches = core.runner.program.caches
        self._block_size = core.runner.graphs.limits.block_size
        self._sequences = sequences
        self._length = _length(core.runner.graphs.limits)
        computed = [_compute(core, tuple(islice(cycle(ids), self._length))) for ids in sequences]
        self._computed = [torch.cat(parts) for parts in zip(*computed, strict=True)]
        """Keys and values of each layer in turn, [num_sequences * length, num_kv_heads, head_dim]."""

    def continued(self, batch: SyntheticBatch) -> SyntheticBatch:
        """Return ``batch`` with the tokens that follow on each request's context."""
        token_ids = [
            token
            for index, (computed, query_len) in enumerate(zip(batch.computed, batch.query_lens, strict=True))
            for token in islice(cycle(self._sequences[self._place(index)]), computed, computed + query_len)
        ]
        return replace(batch, token_ids=tuple(token_ids))

    def places(self, batch: SyntheticBatch) -> torch.Tensor:
        """Return where the tokens before the step lie in the contexts and in the cache.  # [2, num_computed] int64"""
        size = self._block_size
        sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for index, (computed, blocks) in enumerate(zip(batch.computed, batch.blocks, strict=True)):
            position = np.arange(computed)
            sources.append(self._place(index) * self._length + position)
            targets.append(np.array(blocks)[position // size] * size + position % size)
        return upload(np.stack([np.concatenate(sources), np.concatenate(targets)]), self._computed[0].device)

    def fill(self, places: torch.Tensor) -> None:
        """Write keys and values of the tokens at ``places``; the rest of the cache is left as it is."""
        source, target = places.unbind()
        for cache, computed in zip(_tensors(self._caches), self._computed, strict=True):
            cache.flatten(0, 1).index_copy_(0, target, computed.index_select(0, source))

    def _place(self, index: int) -> int:
        """Return which sequence the request at ``index`` goes on from."""
        return index % len(self._sequences)


def _length(limits: SyntheticLimits) -> int:
    """Return the longest context that a made-up request has, in tokens."""
    room = (limits.num_blocks - 1) * limits.block_size - limits.lookahead
    return min(_NUM_BLOCKS * limits.block_size, limits.max_model_len, room)


def _compute(core: EngineCore, token_ids: tuple[int, ...]) -> list[torch.Tensor]:
    """Run one sequence through the model, chunk by chunk, and return keys and values of each layer in turn."""
    runner, chunk = core.runner, core.config.scheduler.max_num_batched_tokens
    size, params = runner.graphs.limits.block_size, SamplingParams(temperature=0.0)
    num_blocks = -(-(len(token_ids) + runner.graphs.limits.lookahead) // size)
    runner.program.state.reset()
    for first in range(0, len(token_ids), chunk):
        ids = token_ids[first : first + chunk]
        made_up = SyntheticBatch(
            rows=(0,),
            query_lens=(len(ids),),
            computed=(first,),
            blocks=(tuple(range(1, num_blocks + 1)),),
            token_ids=ids,
        )
        batch = as_scheduled(made_up, params, decodes=(False,))
        runner.collect(runner.launch(core.planner.plan(batch, only(None, runner.graphs.catalog)), batch))
    return [tensor.flatten(0, 1)[size : size + len(token_ids)].clone() for tensor in _tensors(runner.program.caches)]


def _tensors(caches: Mapping[int, LayerCache]) -> Iterator[torch.Tensor]:
    for cache in caches.values():
        yield cache.key
        yield cache.value
