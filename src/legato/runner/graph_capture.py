"""Capturing every key of a catalog, and proving each graph before it serves. Owns the order and the canary.

For each key: run an eager step of one made-up batch (the oracle, and the warm-up), capture over another, then replay on
the first with poisoned padding and compare. A host value frozen at capture, or padding that leaks into a real row,
makes the two differ; the key is then dropped with a reason and served by the next mode.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from legato.device.protocol import Device
from legato.errors import LegatoError, StaleGraphError
from legato.graphs.captured import CapturedGraph, GraphStore
from legato.graphs.catalog import Catalog
from legato.graphs.epoch import BufferEpoch
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, Stage
from legato.graphs.segments import SegmentedCapture
from legato.observability.reasons import Reason
from legato.observability.trace import NO_TRACE, Tracer
from legato.runner.attention_plans import prepare_made_up
from legato.runner.canary import Canary, difference
from legato.runner.round_program import RoundProgram
from legato.runner.step_program import StepProgram
from legato.runner.step_shape import StepShape, graph_shape
from legato.runner.synthetic import SyntheticLimits, install, make_batch, own_shape_of

_PROVING_SEED = 1
"""Of the batch that is run eagerly and replayed."""
CaptureProgress = Callable[[int, int, GraphKey], None]
"""Told (keys done, keys in all, the latest key)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedKey:
    """A key that cannot serve, with what was seen."""

    key: GraphKey
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one made-up batch left behind, by name: computed eagerly at a key's shape, and by the key's graph."""

    expected: Mapping[str, torch.Tensor]
    given: Mapping[str, torch.Tensor]


class GraphCapturer:
    """Captures keys over a step program, one at a time, large to small."""

    def __init__(
        self,
        device: Device,
        program: StepProgram,
        store: GraphStore,
        epoch: BufferEpoch,
        limits: SyntheticLimits,
        trace: Tracer = NO_TRACE,
    ) -> None:
        self._device = device
        self._program = program
        self._store = store
        self._epoch = epoch
        self._limits = limits
        self._trace = trace

    def capture_all(self, catalog: Catalog, progress: CaptureProgress) -> tuple[Catalog, list[DroppedKey]]:
        """Capture every key; return the catalog of those that serve, and the others with reasons.

        Uses rows and blocks freely: no request may be in flight.
        """
        dropped = []
        keys = sorted(catalog.keys, key=lambda key: key.num_tokens, reverse=True)
        with torch.inference_mode(), frozen_garbage_collection():
            for done, key in enumerate(keys, start=1):
                failure = self._capture_key(key)
                if failure is not None:
                    dropped.append(failure)
                    catalog = catalog.without(key, failure.reason)
                    self._store.drop(key)
                progress(done, len(keys), key)
            self.clear()
        return catalog, dropped

    def prove(
        self,
        key: GraphKey,
        *,
        capturing_seed: int = 2,
        observe: Callable[[int], Mapping[str, torch.Tensor]] = lambda num_tokens: {},
    ) -> Proof | DroppedKey:
        """Capture one key into the store and return what an eager step and the replay left behind.

        ``capturing_seed`` chooses the batch that is captured over; ``observe`` adds what else is to be compared, given
        the number of real tokens. Returns a DroppedKey where there is no graph to compare with.
        """
        try:
            return self._prove(key, capturing_seed, observe)
        except torch.OutOfMemoryError as error:
            detail = f"out of memory: {str(error).splitlines()[0]}"
        self._device.release_unused_memory()
        return DroppedKey(key=key, reason=Reason.CAPTURE_FAILED, detail=detail)

    def _prove(
        self,
        key: GraphKey,
        capturing_seed: int,
        observe: Callable[[int], Mapping[str, torch.Tensor]],
    ) -> Proof | DroppedKey:
        """Do what :meth:`prove` says; memory may run out anywhere."""
        program, shape = self._program, graph_shape(key, self._limits.max_num_seqs)
        proving, capturing = (make_batch(shape, self._limits, seed) for seed in (_PROVING_SEED, capturing_seed))
        own_shape = own_shape_of(proving, key, shape)
        canary = Canary(program, key, shape, proving, own_shape)

        def results() -> dict[str, torch.Tensor]:
            self._device.synchronize()
            return {**observe(len(proving.token_ids)), **canary.results()}

        with self._trace.span("warm-up"):
            canary.install(poisoned=False)
            with program.sizes.of(own_shape):
                self._run(key, shape, None)
            expected = results()
        install(capturing, shape, program.buffers, program.state)
        captured_shape = own_shape_of(capturing, key, shape)
        prepare_made_up(program.planner, captured_shape or shape, capturing)
        started = time.perf_counter()
        try:
            with self._trace.span("capture"), program.sizes.of(captured_shape):
                parts = SegmentedCapture(self._device)
                captured = parts.capture(lambda: self._run(key, shape, parts), whole=key.mode is GraphMode.FULL)
        except torch.OutOfMemoryError:
            raise
        except (LegatoError, RuntimeError) as error:
            return DroppedKey(key=key, reason=Reason.CAPTURE_FAILED, detail=str(error))
        elapsed_ms = (time.perf_counter() - started) * 1e3
        epoch = self._epoch.current()
        self._store.add(CapturedGraph(key=key, parts=captured, epoch=epoch, capture_ms=elapsed_ms))
        self._device.synchronize()  # the staging arrays of the batch captured over are about to be written again
        try:
            with self._trace.span("canary"):
                canary.install(poisoned=True)
                with program.sizes.of(own_shape):
                    self._store.replay(key)
                given = results()
        except StaleGraphError as error:
            return DroppedKey(key=key, reason=Reason.STALE_EPOCH, detail=str(error))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            return DroppedKey(key=key, reason=Reason.CANARY_FAILED, detail=f"the replay raised: {error}")
        return Proof(expected=expected, given=given)

    def _capture_key(self, key: GraphKey) -> DroppedKey | None:
        """Capture one key and prove it; return why it cannot serve, or None."""
        proof = self.prove(key)
        if isinstance(proof, DroppedKey):
            return proof
        found = difference(proof.expected, proof.given)
        return None if found is None else DroppedKey(key=key, reason=Reason.CANARY_FAILED, detail=found)

    def _run(self, key: GraphKey, shape: StepShape, segments: SegmentedCapture | None) -> None:
        """Run the step, or the part of one, that ``key`` stands for."""
        full = key.mode is GraphMode.FULL
        if full and key.stage in (Stage.TARGET, Stage.ROUND):
            self._program.whole(shape, key.sampler)
        else:
            self._program.run(key.stage, shape, None if full else segments)

    def run_eagerly(self, key: GraphKey, own_shape: StepShape | None) -> None:
        """Run what ``key`` stands for, eagerly at its padded shape, over the inputs as they are; wait for the end.

        ``own_shape``: what attention outside of the graph is given; None: the graph holds attention.
        """
        with self._program.sizes.of(own_shape):
            self._run(key, graph_shape(key, self._limits.max_num_seqs), None)
        self._device.synchronize()

    def clear(self) -> None:
        """Leave nothing of made-up batches in rows or in the null block."""
        self._program.state.reset()
        if isinstance(self._program, RoundProgram):
            self._program.forget()
        for cache in self._program.caches.values():
            cache.key[0].zero_()
            cache.value[0].zero_()


@contextmanager
def frozen_garbage_collection() -> Iterator[None]:
    """Keep the collector from running inside a capture, where freeing device memory can break it.

    Where most of the process is frozen already, as a host may have done, that is left as it is.
    """
    gc.collect()
    freezes = gc.get_freeze_count() < len(gc.get_objects())  # a capture's own collections are to be short
    if freezes:
        gc.freeze()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        if freezes:
            gc.unfreeze()
