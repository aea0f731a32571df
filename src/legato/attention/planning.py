"""Backends whose kernels are planned on the host, from lengths. Owns the border: told of a batch before it runs.

A plan cannot be part of a graph. It is made where the host fills a step's inputs, from lengths that it knows itself, so
that nothing waits for the device. A backend that does not implement it needs no plan.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBatch:
    """What the host knows of the next batch."""

    num_reqs: int
    """Padding included."""
    query_len: int | None
    """Width of a uniform batch; None: any mix."""
    query_lens: tuple[int, ...]
    """[num_real_reqs]"""
    seq_lens: tuple[int, ...]
    """[num_real_reqs] this step's tokens included."""


@runtime_checkable
class PlanningBackend(Protocol):
    """An attention backend that is told of the batches it plans."""

    def plans(self, query_len: int | None) -> bool:
        """Return whether batches of this width, None: any mix, are to be announced by :meth:`prepare`."""
        ...

    def prepare(self, batch: PreparedBatch) -> None:
        """Plan ``batch``, which is the next to run: eagerly, inside a capture, or by the replay of a graph.

        One call for each such step, outside of captures. The device may be one step behind, not two: host memory that
        an earlier plan is still copied from is left alone for one call.
        """
        ...
