"""The border between models, runner and attention backends. Owns the shapes that cross it.

A model calls :meth:`AttentionContext.attend` with the heads as one product gives them. The runner turns them, writes
keys and values to the cache, and calls the backend, inside the graph or between two segments of one; the backend
computes attention over the cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from legato.attention.graph_support import Support
from legato.attention.setup import AttentionSetup
from legato.kernels.rotary import Rotation
from legato.kvcache.spec import KVSpec
from legato.kvcache.storage import LayerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer:
    """One attention layer, as a model declares it."""

    index: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    """A query sees this many of the latest tokens, itself included; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMetadata:
    """What a backend reads in one step; all tensors keep their address inside a graph.

    Padded requests have ``seq_len`` 0 and ``query_len`` 0 in a mixed batch; in a uniform one they have the width, and
    the null block. Padded tokens have slots of the null block.
    """

    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    seq_lens: torch.Tensor  # [num_reqs] int32, this step's tokens included
    block_table: torch.Tensor  # [num_reqs, max_blocks_per_req] int32
    slot_mapping: torch.Tensor  # [num_tokens] int64, block * block_size + offset
    num_tokens: int
    num_reqs: int
    query_len: int | None
    """Width of a uniform batch; None: any mix."""
    max_query_len: int
    """Host upper bound over the batch's query lengths."""
    key_ints: Mapping[str, int]
    """The host integers that the backend declared for this step."""


class AttentionContext(Protocol):
    """What a model sees of attention in one step."""

    def attend(self, layer: AttentionLayer, heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Turn queries and keys, store keys and values, then attend.

        ``heads`` [num_tokens, num_heads + 2 * num_kv_heads, head_dim] is what one product gives: each token's queries,
        then its keys, then its values. Returns [num_tokens, num_heads * head_dim].
        """
        ...


class AttentionBackend(Protocol):
    """One way to compute paged attention. Stateless but for persistent workspaces."""

    name: ClassVar[str]

    def __init__(self, setup: AttentionSetup) -> None:
        """Allocate workspaces for the largest batch; ``support`` has said yes before."""
        ...

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return how far this backend goes inside a full graph for layers that keep ``spec``, and why.

        Decided before anything is built. Raises BackendError, with all reasons, where it cannot serve them at all.
        """
        ...

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return every host integer that selects a kernel or a launch shape for such a batch."""
        ...

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend ``query`` to the cache and write ``out``, contiguous, both [num_tokens, num_heads, head_dim].

        Keys and values of the step's own tokens are in the cache already. The heads of a token lie side by side in
        ``query``; its tokens may lie apart.
        """
        ...
