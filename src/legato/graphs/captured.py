"""Captured graphs at run time. Owns replay, what each graph cost, and the refusal to replay a stale one."""

from collections.abc import Sequence
from dataclasses import dataclass

from legato.device.protocol import DeviceGraph
from legato.errors import StaleGraphError
from legato.graphs.epoch import BufferEpoch
from legato.graphs.key import GraphKey
from legato.graphs.segments import EagerCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """One graph, or for PIECEWISE its segments with the eager calls between them."""

    key: GraphKey
    parts: Sequence[DeviceGraph | EagerCall]
    epoch: int
    capture_ms: float

    @property
    def num_bytes(self) -> int:
        """Memory of this graph alone, beside what all graphs share."""
        return sum(part.num_bytes for part in self.parts if not isinstance(part, EagerCall))

    @property
    def num_nodes(self) -> int:
        """Operations inside graphs."""
        return sum(part.num_nodes for part in self.parts if not isinstance(part, EagerCall))


class GraphStore:
    """All captured graphs, by key."""

    def __init__(self, epoch: BufferEpoch) -> None:
        self._epoch = epoch
        self._fresh_in: int | None = None
        """Epoch that all graphs were found to be of."""
        self.graphs: dict[GraphKey, CapturedGraph] = {}

    def add(self, graph: CapturedGraph) -> None:
        """Keep a graph."""
        self.graphs[graph.key] = graph
        self._fresh_in = None

    def drop(self, key: GraphKey) -> None:
        """Forget a graph."""
        self.graphs.pop(key, None)

    def stale_keys(self) -> list[GraphKey]:
        """Return the keys whose buffers have moved since their capture."""
        epoch = self._epoch.current()
        if epoch == self._fresh_in:
            return []
        stale = [key for key, graph in self.graphs.items() if graph.epoch != epoch]
        self._fresh_in = None if stale else epoch
        return stale

    def replay(self, key: GraphKey, *, checked: bool = False) -> None:
        """Run one graph. ``checked``: :meth:`stale_keys` was asked since anything could move.

        Raises StaleGraphError, and runs nothing, if a buffer moved after the capture.
        """
        graph = self.graphs[key]
        if not checked and graph.epoch != self._epoch.current():
            raise StaleGraphError(
                "a buffer moved after this graph was captured",
                {"requested": str(key), "found": f"captured in epoch {graph.epoch}", "options": "capture again"},
            )
        for part in graph.parts:
            part.replay()
