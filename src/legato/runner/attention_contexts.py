"""What ``attend`` means in a step: all of it inside the graph, or the attention alone between two segments of one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch

from legato.attention.protocol import AttentionBackend, AttentionContext, AttentionLayer, AttentionMetadata
from legato.graphs.segments import SegmentedCapture
from legato.kernels.rotary import Rotation, rotate_and_store
from legato.kvcache.storage import LayerCache

Contexts = Callable[[AttentionMetadata], AttentionContext]
"""Gives a pass with this metadata its attention."""


def attention_contexts(
    backend: AttentionBackend, caches: Mapping[int, LayerCache], segments: SegmentedCapture | None
) -> Contexts:
    """Return attention where the model stands; with ``segments``, attention that cuts their capture."""
    if segments is None:
        return lambda metadata: InlineAttention(backend, caches, metadata)
    return lambda metadata: BreakingAttention(backend, caches, metadata, segments)


class InlineAttention:
    """Calls the backend where the model stands: eagerly, or as part of a running capture."""

    def __init__(
        self, backend: AttentionBackend, caches: Mapping[int, LayerCache], metadata: AttentionMetadata
    ) -> None:
        self._backend = backend
        self._caches = caches
        self._metadata = metadata

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Turn, store, attend; shapes as in the protocol."""
        cache = self._caches[layer.index]
        query = rotate_and_store(heads, rotation, cache.key, cache.value, self._metadata.slot_mapping)
        out = query.new_empty(query.shape)
        self._run(layer, query, cache, out)
        return out.view(out.shape[0], -1)

    def _run(self, layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, out: torch.Tensor) -> None:
        self._backend.forward(layer, query, cache, self._metadata, out)


class BreakingAttention(InlineAttention):
    """Cuts the running capture at each backend call, which then runs eagerly at every replay too.

    Turning and storing stand in the segment before it. Of a step's tensors, the eager call keeps addresses alone.
    ``query`` is owned by the frame of :meth:`attend` until the next segment has begun, ``out`` by the model until it
    has read it, and the metadata by this object, which the model holds to the end of the step.
    """

    def __init__(
        self,
        backend: AttentionBackend,
        caches: Mapping[int, LayerCache],
        metadata: AttentionMetadata,
        segments: SegmentedCapture,
    ) -> None:
        super().__init__(backend, caches, metadata)
        self._segments = segments
        self._borrowed = _borrowed(metadata, segments)

    def _run(self, layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, out: torch.Tensor) -> None:
        query, out = self._segments.borrow(query), self._segments.borrow(out)
        self._segments.run_eagerly(partial(self._backend.forward, layer, query, cache, self._borrowed, out))


def _borrowed(metadata: AttentionMetadata, segments: SegmentedCapture) -> AttentionMetadata:
    """Return ``metadata`` over borrowed tensors: one object for all layers, by which a backend knows the step."""
    return replace(
        metadata,
        query_start_loc=segments.borrow(metadata.query_start_loc),
        seq_lens=segments.borrow(metadata.seq_lens),
        block_table=segments.borrow(metadata.block_table),
        slot_mapping=segments.borrow(metadata.slot_mapping),
    )
