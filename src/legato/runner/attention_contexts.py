"""What ``attend`` means in a step: all of it inside the graph, or the attention alone between two segments of one.

Where a graph holds attention, or none serves the step, it has the sizes that the step is computed with. Between two
segments it has the step's own, as it would have without the graph.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from legato.attention.protocol import AttentionBackend, AttentionContext, AttentionLayer, AttentionMetadata
from legato.graphs.segments import SegmentedCapture
from legato.kernels.rotary import Rotation, rotate_and_store
from legato.kvcache.storage import LayerCache
from legato.runner.step_sizes import OwnMetadata, StepSizes

Contexts = Callable[[AttentionMetadata], AttentionContext]
"""Gives a pass with this metadata its attention."""


def attention_contexts(
    backend: AttentionBackend,
    caches: Mapping[int, LayerCache],
    segments: SegmentedCapture | None,
    sizes: StepSizes,
) -> Contexts:
    """Return attention where the model stands, over the step's own ``sizes`` if any are set.

    With ``segments``, attention that cuts their capture.
    """
    if segments is not None:
        return lambda metadata: BreakingAttention(backend, caches, metadata, segments, sizes)
    if sizes.own is not None:
        return lambda metadata: UnpaddedAttention(backend, caches, metadata, sizes)
    return lambda metadata: InlineAttention(backend, caches, metadata)


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


class UnpaddedAttention(InlineAttention):
    """Calls the backend eagerly in a padded step, with the step's own sizes: what a replay is held to."""

    def __init__(
        self,
        backend: AttentionBackend,
        caches: Mapping[int, LayerCache],
        metadata: AttentionMetadata,
        sizes: StepSizes,
    ) -> None:
        super().__init__(backend, caches, metadata)
        self._own = OwnMetadata(metadata, sizes)

    def _run(self, layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, out: torch.Tensor) -> None:
        _OwnCall(self._backend, layer, query, cache, self._own, out)()


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
        sizes: StepSizes,
    ) -> None:
        super().__init__(backend, caches, metadata)
        self._segments = segments
        self._own = OwnMetadata(_borrowed(metadata, segments), sizes)

    def _run(self, layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, out: torch.Tensor) -> None:
        query, out = self._segments.borrow(query), self._segments.borrow(out)
        self._segments.run_eagerly(_OwnCall(self._backend, layer, query, cache, self._own, out))


@dataclass(slots=True)
class _OwnCall:
    """A layer's backend call on a step's own tokens; rows behind them are left as they are, and nobody reads them."""

    backend: AttentionBackend
    layer: AttentionLayer
    query: torch.Tensor
    cache: LayerCache
    own: OwnMetadata
    out: torch.Tensor
    _views: tuple[int, torch.Tensor, torch.Tensor] | None = None
    """(tokens of the latest step, query, out), which steps of one size share, as decodes are."""

    def __call__(self) -> None:
        metadata = self.own.now()
        num_tokens, views = metadata.num_tokens, self._views
        if views is None or views[0] != num_tokens:
            self._views = views = num_tokens, self.query[:num_tokens], self.out[:num_tokens]
        self.backend.forward(self.layer, views[1], self.cache, metadata, views[2])


def _borrowed(metadata: AttentionMetadata, segments: SegmentedCapture) -> AttentionMetadata:
    """Return ``metadata`` over borrowed tensors."""
    return replace(
        metadata,
        query_start_loc=segments.borrow(metadata.query_start_loc),
        seq_lens=segments.borrow(metadata.seq_lens),
        block_table=segments.borrow(metadata.block_table),
        slot_mapping=segments.borrow(metadata.slot_mapping),
    )
