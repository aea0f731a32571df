"""The oracle: paged attention written out in plain torch operations. Owns correctness, not speed.

Every query gathers its whole block table and masks what it must not see, so that no host value depends on the batch:
any mix of requests can be captured, on any device. Cost grows with ``max_model_len``, not with the real lengths.
"""

from typing import ClassVar

import torch

from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache

_QUERIES_PER_CHUNK = 16
"""Bounds the gathered keys: chunk × max_model_len × heads × head size."""


class ReferenceBackend:
    """Softmax attention (arXiv 1706.03762) over the paged cache, in float32."""

    name: ClassVar[str] = "reference"

    def __init__(self, setup: AttentionSetup) -> None:
        """Keep nothing: there is no workspace."""

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return ALWAYS: nothing in it depends on a host value."""
        if not isinstance(spec, FullAttentionSpec):
            raise BackendError(
                "backend reference cannot serve this model",
                {"found": type(spec).__name__, "limit": "keys and values of attention layers"},
            )
        return Support(level=GraphSupport.ALWAYS, reason="plain operations over the whole block table")

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: no kernel is chosen by a host value."""
        return ()

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend in chunks of queries; shapes as in the protocol."""
        token = torch.arange(query.shape[0], dtype=torch.int32, device=query.device)
        starts = metadata.query_start_loc
        request = torch.searchsorted(starts[1:].contiguous(), token, right=True)  # [num_tokens]
        request = request.clamp(max=metadata.num_reqs - 1)  # padded tokens read the last request; nobody reads them
        ends = metadata.seq_lens[request] - (starts[request + 1] - starts[request]) + token - starts[request] + 1
        for begin in range(0, query.shape[0], _QUERIES_PER_CHUNK):
            chunk = slice(begin, begin + _QUERIES_PER_CHUNK)
            blocks = metadata.block_table[request[chunk]]
            out[chunk].copy_(_attend(layer, query[chunk], cache, blocks, ends[chunk]))


def _attend(
    layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, blocks: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Attend each query to the first ``ends`` tokens of its own blocks.

    ``query`` [n, num_heads, head_dim], ``blocks`` [n, max_blocks], ``ends`` [n]; returns the shape of ``query``.
    """
    keys = cache.key[blocks].flatten(1, 2).float()  # [n, context, num_kv_heads, head_dim]
    values = cache.value[blocks].flatten(1, 2).float()
    position = torch.arange(keys.shape[1], device=query.device)
    visible = position < ends[:, None]  # [n, context]
    if layer.window is not None:
        visible = visible & (position >= ends[:, None] - layer.window)
    grouped = query.float().unflatten(1, (layer.num_kv_heads, -1))  # [n, num_kv_heads, group, head_dim]
    scores = torch.einsum("nkgd,nckd->nkgc", grouped, keys) * layer.scale
    weights = scores.masked_fill(~visible[:, None, None], float("-inf")).softmax(-1)
    # What is not visible may hold anything, not-a-number included; a weight of zero alone would not silence it.
    values = values.masked_fill(~visible[:, :, None, None], 0.0)
    return torch.einsum("nkgc,nckd->nkgd", weights, values).flatten(1, 2)
