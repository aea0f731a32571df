"""The graphs that serve a program's steps. Owns the catalog of those that may be replayed, and when one may no more."""

from legato.device.protocol import Device
from legato.graphs.captured import GraphStore
from legato.graphs.catalog import Catalog
from legato.graphs.epoch import BufferEpoch
from legato.graphs.key import GraphKey
from legato.observability.reasons import Reason
from legato.observability.trace import NO_TRACE, Tracer
from legato.runner.graph_capture import CaptureProgress, DroppedKey, GraphCapturer
from legato.runner.round_program import RoundProgram
from legato.runner.step_program import StepProgram
from legato.runner.synthetic import SyntheticLimits


class ServingGraphs:
    """Captured over one program, and valid while none of its buffers moves."""

    def __init__(
        self,
        device: Device,
        program: StepProgram,
        catalog: Catalog,
        limits: SyntheticLimits,
        trace: Tracer = NO_TRACE,
    ) -> None:
        self._device = device
        self._program = program
        self._trace = trace
        self.limits = limits
        """What made-up batches may use, over which graphs are captured and proven."""
        self.catalog = catalog
        """Keys that may be replayed; there are no graphs of them until :meth:`capture`."""
        self.epoch = _watched(program)
        self.store = GraphStore(self.epoch)
        self.shared_bytes = 0
        """What all graphs share for what they compute on the way."""

    @property
    def num_bytes(self) -> int:
        """Memory of all graphs, what they share included."""
        return self.shared_bytes + sum(graph.num_bytes for graph in self.store.graphs.values())

    def capture(self, progress: CaptureProgress) -> list[DroppedKey]:
        """Capture and prove every key of the catalog; return those that cannot serve. No request may be in flight."""
        self.catalog, dropped = self.capturer().capture_all(self.catalog, progress)
        self.shared_bytes = self._device.graph_pool_bytes()
        return dropped

    def capturer(self, store: GraphStore | None = None) -> GraphCapturer:
        """Return what captures the program into ``store``, whose graphs are to be examined; None: into its own."""
        store = self.store if store is None else store
        return GraphCapturer(self._device, self._program, store, self.epoch, self.limits, self._trace)

    def drop_stale(self) -> None:
        """Take graphs whose buffers have moved out of the catalog."""
        stale = self.store.stale_keys()
        if stale:
            self._device.synchronize()  # one of them may be running
        for key in stale:
            self.catalog = self.catalog.without(key, Reason.STALE_EPOCH)
            self.store.drop(key)

    def replay(self, key: GraphKey) -> None:
        """Run one graph, which was not stale when its step was planned."""
        self.store.replay(key, checked=True)


def _watched(program: StepProgram) -> BufferEpoch:
    """Return the epoch of everything that the program's graphs read and write by address."""
    epoch = BufferEpoch()
    epoch.watch(lambda: program.buffers.tensors().values())
    epoch.watch(lambda: program.state.tensors().values())
    epoch.watch(lambda: [cache.key for cache in program.caches.values()])
    epoch.watch(lambda: [cache.value for cache in program.caches.values()])
    if isinstance(program, RoundProgram):
        drafter = program.drafter
        epoch.watch(lambda: drafter.tensors().values())
    return epoch
