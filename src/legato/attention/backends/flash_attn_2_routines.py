"""How FlashAttention-2 is called, by each of its entry points. Owns their arguments; knows nobody who brings them.

All take a paged cache, read lengths and block tables on the device, and derive grids and splits from the shapes they
are given and from an upper bound of the context, for which the block table's width stands.
"""

from typing import Any, Protocol

import torch

from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.kvcache.storage import LayerCache

LIBRARY_SPLITS = 0
"""The library chooses, from the padded batch and the bound of the context."""


class Routines(Protocol):
    """One provider's two routines; shapes as in :meth:`AttentionBackend.forward`."""

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend a batch of any query lengths."""
        ...

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Attend a batch in which every request has ``width`` query tokens."""
        ...


class LibraryRoutines:
    """The two C++ entry points of the flash-attn package, which vLLM's library has too.

    Decode packs the heads that share a key head into rows of one tile, as long as each request has one token and no
    window, and splits the context over multiprocessors for any width.
    """

    def __init__(self, library: Any, *, varlen_splits: tuple[int, ...]) -> None:
        """Keep the entry points; ``varlen_splits`` is the argument that vLLM's library alone has."""
        self._varlen, self._decode = library.varlen_fwd, library.fwd_kvcache
        self._varlen_splits = varlen_splits

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Call ``varlen_fwd``. It takes one token at most to mean exactly one, so that its bound is never below two."""
        starts = metadata.query_start_loc
        self._varlen(
            query,
            cache.key,
            cache.value,
            out,
            starts,
            starts,  # of keys: not read where the next argument is given
            metadata.seq_lens,
            None,  # left padding
            metadata.block_table,
            None,  # ALiBi slopes
            max(2, metadata.max_query_len),
            _max_context(cache, metadata),
            0.0,  # dropout
            layer.scale,
            False,  # zero the result first
            True,  # causal
            *_window(layer),
            0.0,  # soft cap
            False,  # return the weights
            *self._varlen_splits,
            None,  # random generator
        )

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Call ``fwd_kvcache``, which takes the bound of the context from the block table by itself."""
        shape = (metadata.num_reqs, width, *query.shape[1:])
        self._decode(
            query.view(shape),
            cache.key,
            cache.value,
            None,  # keys to append
            None,  # values to append
            metadata.seq_lens,
            None,  # rotary cosines
            None,  # rotary sines
            None,  # rows of the batch in the cache
            None,  # left padding
            metadata.block_table,
            None,  # ALiBi slopes
            out.view(shape),
            layer.scale,
            True,  # causal
            *_window(layer),
            0.0,  # soft cap
            False,  # interleaved rotary
            LIBRARY_SPLITS,
        )


class TorchRoutines:
    """PyTorch's own varlen attention. One entry point, whose decode is what it does for one token of each request."""

    def mixed(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend without splits: parts of ragged batches are not put together rightly."""
        self._attend(layer, query, cache, metadata, out, max_query_len=max(2, metadata.max_query_len), num_splits=1)

    def uniform(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        width: int,
    ) -> None:
        """Attend, with grouped heads packed and the context split where each request has one token and no window."""
        packs = width == 1 and layer.num_heads > layer.num_kv_heads and layer.window is None
        splits = None if packs else 1
        self._attend(layer, query, cache, metadata, out, max_query_len=width, num_splits=splits)

    def _attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
        *,
        max_query_len: int,
        num_splits: int | None,
    ) -> None:
        left, right = _window(layer)
        attended = torch.ops.aten._flash_attention_forward(
            query,
            cache.key,
            cache.value,
            metadata.query_start_loc,
            metadata.query_start_loc,  # of keys: not read where lengths are given
            max_query_len,
            _max_context(cache, metadata),
            0.0,  # dropout
            True,  # causal
            False,  # return the weights
            scale=layer.scale,
            window_size_left=left,
            window_size_right=right,
            seqused_k=metadata.seq_lens,
            block_table=metadata.block_table,
            num_splits=num_splits,
        )
        out.copy_(attended[0])  # its variant with a given result leaves it unwritten where heads are packed


def _window(layer: AttentionLayer) -> tuple[int, int]:
    """Return how many tokens a query sees before and after itself; -1: all that the causal mask leaves."""
    return (-1, -1) if layer.window is None else (layer.window - 1, 0)


def _max_context(cache: LayerCache, metadata: AttentionMetadata) -> int:
    return metadata.block_table.shape[1] * cache.key.shape[1]
