"""A step's own sizes, for attention that no graph holds. Owns whose they are, and the views of a graph's tensors.

A piecewise graph is captured for a capacity and any mix of requests. What runs between its segments can ask the host at
each replay, and so takes the routine, and the sizes, that it takes where no graph serves the step.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from legato.attention.protocol import AttentionMetadata
from legato.runner.step_shape import StepShape


class StepSizes:
    """The shape of the step that runs, as far as attention is to know of it."""

    def __init__(self) -> None:
        self.own: StepShape | None = None
        """None: attention takes the sizes that the step is computed with."""

    @contextmanager
    def of(self, own: StepShape | None) -> Iterator[None]:
        """Let attention outside of graphs have the sizes of ``own`` while the context is open."""
        self.own = own
        try:
            yield
        finally:
            self.own = None


class OwnMetadata:
    """What a backend reads of a padded step, without the padding."""

    def __init__(self, padded: AttentionMetadata, sizes: StepSizes) -> None:
        self.padded = padded
        self._sizes = sizes
        self._made_for: StepShape | None = None
        self._made = padded

    def now(self) -> AttentionMetadata:
        """Return the running step's metadata: one object for all layers, by which a backend knows the step."""
        own = self._sizes.own
        assert own is not None, "nobody has said whose step it is"
        if own is not self._made_for:
            self._made_for, self._made = own, without_padding(self.padded, own)
        return self._made


def without_padding(padded: AttentionMetadata, own: StepShape) -> AttentionMetadata:
    """Return ``padded`` for its first requests and tokens alone, with the host integers of ``own``.

    Requests stand before padding, and their values do not depend on it: a mix that happens to be uniform has the
    places and lengths of the uniform batch.
    """
    return AttentionMetadata(
        query_start_loc=padded.query_start_loc[: own.num_reqs + 1],
        seq_lens=padded.seq_lens[: own.num_reqs],
        block_table=padded.block_table[: own.num_reqs],
        slot_mapping=padded.slot_mapping[: own.num_tokens],
        num_tokens=own.num_tokens,
        num_reqs=own.num_reqs,
        query_len=own.query_len,
        max_query_len=own.max_query_len,
        key_ints=dict(own.key_ints),
    )
