"""What ``attend`` means in a step: all of it inside the graph, or the attention alone between two segments of one."""

from collections.abc import Callable, Mapping

import torch

from legato.attention.protocol import AttentionBackend, AttentionLayer, AttentionMetadata
from legato.graphs.segments import SegmentedCapture
from legato.kernels.rotary import Rotation, rotate_and_store
from legato.kvcache.storage import LayerCache


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
        backend, cache, metadata = self._backend, self._caches[layer.index], self._metadata
        query = rotate_and_store(heads, rotation, cache.key, cache.value, metadata.slot_mapping)
        out = query.new_empty(query.shape)
        self._run(lambda: backend.forward(layer, query, cache, metadata, out))
        return out.view(out.shape[0], -1)

    def _run(self, attention: Callable[[], None]) -> None:
        attention()


class BreakingAttention(InlineAttention):
    """Cuts the running capture at each backend call, which then runs eagerly at every replay too.

    Turning and storing stand in the segment before it. Of a step's tensors, the eager call keeps ``query`` and ``out``.
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

    def _run(self, attention: Callable[[], None]) -> None:
        self._segments.run_eagerly(attention)
