"""Two attention backends as one: uniform batches go to the first, all others to the second. Owns who serves which.

Kernels that are fast for decodes are not those that are fast for prompts. Both read one cache, whose layout is the same
for all backends.
"""

from typing import ClassVar

import torch

from legato.attention.compilation import CompileProgress, CompilingBackend
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.planning import PlanningBackend, PreparedBatch
from legato.attention.protocol import AttentionBackend, AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.kvcache.spec import KVSpec
from legato.kvcache.storage import LayerCache

SEPARATOR = "+"
"""Between the names of a pair's backends."""


class BackendPair:
    """What all pairs have in common; :func:`paired` makes one."""

    name: ClassVar[str]
    for_uniform: ClassVar[type[AttentionBackend]]
    for_others: ClassVar[type[AttentionBackend]]

    def __init__(self, setup: AttentionSetup) -> None:
        self.uniform = self.for_uniform(setup)
        """The first, by itself."""
        self._others = self.for_others(setup)

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return the first backend's level, as far as the second need not go inside full graphs for it."""
        uniform, others = cls.for_uniform.support(setup, spec), cls.for_others.support(setup, spec)
        level = uniform.level
        if level is GraphSupport.ALWAYS and others.level is not GraphSupport.ALWAYS:
            level = GraphSupport.UNIFORM
        reason = f"{cls.for_uniform.name}: {uniform.reason}; mixed batches, {cls.for_others.name}: {others.reason}"
        return Support(level=level, reason=reason)

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return those of the backend that serves such a batch."""
        backend = cls.for_others if query_len is None else cls.for_uniform
        return backend.key_ints(setup, num_reqs=num_reqs, query_len=query_len, max_seq_len=max_seq_len)

    def compile_kernels(self, widths: tuple[int, ...], progress: CompileProgress) -> None:
        """Compile what either backend compiles; the second serves no uniform batch."""
        if isinstance(self.uniform, CompilingBackend):
            self.uniform.compile_kernels(widths, progress)
        if isinstance(self._others, CompilingBackend):
            self._others.compile_kernels((), progress)

    def plans(self, query_len: int | None) -> bool:
        """Return whether the backend that serves such batches plans them."""
        backend = self._serving(query_len)
        return isinstance(backend, PlanningBackend) and backend.plans(query_len)

    def prepare(self, batch: PreparedBatch) -> None:
        """Let the backend that serves ``batch`` plan it."""
        backend = self._serving(batch.query_len)
        assert isinstance(backend, PlanningBackend), f"{backend.name} plans no batch"
        backend.prepare(batch)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend; shapes as in the protocol."""
        self._serving(metadata.query_len).forward(layer, query, cache, metadata, out)

    def _serving(self, query_len: int | None) -> AttentionBackend:
        return self._others if query_len is None else self.uniform


def paired(for_uniform: type[AttentionBackend], for_others: type[AttentionBackend]) -> type[BackendPair]:
    """Return a backend that is ``for_uniform`` for decodes and draft verification, ``for_others`` for the rest."""
    name = f"{for_uniform.name}{SEPARATOR}{for_others.name}"
    return type("Pair", (BackendPair,), {"name": name, "for_uniform": for_uniform, "for_others": for_others})
