"""What ``attend`` means in a step: inside the graph, or between two segments of one."""

from collections.abc import Mapping

import torch

from legato.attention.protocol import AttentionBackend, AttentionLayer, AttentionMetadata
from legato.graphs.segments import SegmentedCapture
from legato.kvcache.storage import LayerCache


class InlineAttention:
    """Calls the backend where the model stands: eagerly, or as part of a running capture."""

    def __init__(
        self, backend: AttentionBackend, caches: Mapping[int, LayerCache], metadata: AttentionMetadata
    ) -> None:
        self._backend = backend
        self._caches = caches
        self._metadata = metadata

    def attend(
        self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Store keys and values, then attend; shapes as in the protocol."""
        out = query.new_empty(query.shape)
        self._backend.forward(layer, query, key, value, self._caches[layer.index], self._metadata, out)
        return out.view(out.shape[0], -1)


class BreakingAttention:
    """Cuts the running capture at each attention call, which then runs eagerly at every replay too."""

    def __init__(
        self,
        backend: AttentionBackend,
        caches: Mapping[int, LayerCache],
        metadata: AttentionMetadata,
        segments: SegmentedCapture,
    ) -> None:
        self._backend = backend
        self._caches = caches
        self._metadata = metadata
        self._segments = segments

    def attend(
        self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """End the segment, store and attend, begin the next; shapes as in the protocol."""
        out = query.new_empty(query.shape)
        cache = self._caches[layer.index]

        def call() -> None:
            self._backend.forward(layer, query, key, value, cache, self._metadata, out)

        self._segments.run_eagerly(call)
        return out.view(out.shape[0], -1)
