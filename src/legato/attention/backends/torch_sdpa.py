"""Paged attention on the CPU around ``scaled_dot_product_attention``. Owns one custom operator.

To a graph the operator is one node, as a kernel is on a GPU: it reads lengths and block tables from memory when it
runs, so that nothing about the batch is frozen at capture and the work follows the real lengths.
"""

from typing import ClassVar

import torch
from torch.nn.functional import scaled_dot_product_attention

from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.device.recording_capture import PYTHON_KERNEL
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache

_MAX_PADDING = 1.25
"""Decoding requests share one call while the longest asks for at most so much more than all of them have."""


class TorchSdpaBackend:
    """PyTorch's own attention: a call per prefill, one for all decodes, with grouped heads packed into rows."""

    name: ClassVar[str] = "torch_sdpa"

    def __init__(self, setup: AttentionSetup) -> None:
        """Reserve room for the gathered keys and values of the largest batch; only what is written takes memory."""
        num_blocks = setup.max_num_seqs * -(-setup.max_model_len // setup.block_size)
        shape = (2, num_blocks, setup.block_size, setup.model.num_kv_heads, setup.model.head_dim)
        self._workspace = torch.empty(shape, dtype=getattr(torch, setup.dtype))

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return ALWAYS on the CPU; raise elsewhere, where the operator would have to wait for the lengths."""
        found = {"device": setup.device, "layers": type(spec).__name__}
        if setup.device.kind != "cpu" or not isinstance(spec, FullAttentionSpec):
            limit = {"limit": "attention layers on cpu: it reads lengths from device memory on the host"}
            raise BackendError("backend torch_sdpa cannot serve this model here", found | limit)
        return Support(level=GraphSupport.ALWAYS, reason="one operator that reads lengths when it runs")

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: the operator reads all lengths from memory."""
        return ()

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend; shapes as in the protocol."""
        torch.ops.legato.paged_sdpa(
            query,
            cache.key,
            cache.value,
            metadata.query_start_loc,
            metadata.seq_lens,
            metadata.block_table,
            self._workspace,
            out,
            layer.scale,
            layer.window or 0,
        )


def _paged_sdpa(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    workspace: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    window: int,
) -> None:
    """Attend the tokens of each request to its own blocks. Requests without tokens, and padded tokens, are skipped."""
    starts, lengths = query_start_loc.tolist(), seq_lens.tolist()
    if not window and _decode_alike(starts, lengths):
        _decode_together(query, key_cache, value_cache, lengths, block_table, workspace, out, scale)
        return
    for index, seq_len in enumerate(lengths):
        begin, end = starts[index], starts[index + 1]
        if not 0 < end - begin <= seq_len:
            continue
        blocks = block_table[index, : -(-seq_len // key_cache.shape[1])]
        keys, values = _sequence(key_cache, value_cache, blocks, seq_len)
        attend = _decode if end - begin == 1 else _prefill
        attend(query[begin:end], keys, values, out[begin:end], scale, window)


def _decode_alike(starts: list[int], lengths: list[int]) -> bool:
    """Return whether there are several requests, of one token each and of about the same length."""
    num_reqs = len(lengths)
    if num_reqs == 1 or starts != list(range(num_reqs + 1)):
        return False
    return num_reqs * max(lengths) <= _MAX_PADDING * sum(lengths)


def _sequence(
    key_cache: torch.Tensor, value_cache: torch.Tensor, blocks: torch.Tensor, seq_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one sequence's keys and values, each [1, num_kv_heads, seq_len, head_dim].

    Blocks that lie one behind another are not copied. Few operations: beside a product of weights that fills every
    cache, the time of a small one is that of finding its code.
    """
    _, block_size, num_heads, head_dim = key_cache.shape
    numbers = blocks.tolist()
    first = numbers[0]
    if numbers == list(range(first, first + len(numbers))):
        offset = first * block_size * num_heads * head_dim
    else:
        offset = 0
        key_cache, value_cache = key_cache.index_select(0, blocks), value_cache.index_select(0, blocks)
    shape, strides = (1, num_heads, seq_len, head_dim), (0, head_dim, num_heads * head_dim, 1)
    return (
        key_cache.as_strided(shape, strides, key_cache.storage_offset() + offset),
        value_cache.as_strided(shape, strides, value_cache.storage_offset() + offset),
    )


def _decode_together(
    query: torch.Tensor,  # [num_reqs, num_heads, head_dim]
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    lengths: list[int],
    block_table: torch.Tensor,
    workspace: torch.Tensor,  # [2, blocks of the largest batch, block_size, num_kv_heads, head_dim]
    out: torch.Tensor,
    scale: float,
) -> None:
    """Attend one token of each request in one call, shorter sequences padded to the longest.

    Layers of another form than the model's, which a drafter may have, do without the workspace.
    """
    block_size = key_cache.shape[1]
    blocks = block_table[:, : -(-max(lengths) // block_size)].reshape(-1)
    position = torch.arange(len(blocks) // len(lengths) * block_size)
    unseen = position >= torch.tensor(lengths)[:, None]  # [num_reqs, context]
    # What is not seen may hold anything, not-a-number included; a weight of zero alone would not silence it.
    silent = unseen.flatten().nonzero().squeeze(1)
    keys, values = (
        torch.index_select(cache, 0, blocks, out=room[: len(blocks)] if room.shape[1:] == cache.shape[1:] else None)
        .flatten(0, 1)
        .index_fill_(0, silent, 0.0)
        .unflatten(0, unseen.shape)
        .transpose(1, 2)
        for cache, room in zip((key_cache, value_cache), workspace, strict=True)
    )  # [num_reqs, num_kv_heads, context, head_dim]
    mask = torch.zeros(unseen.shape, dtype=query.dtype).masked_fill_(unseen, float("-inf"))
    packed = query.unflatten(1, (keys.shape[1], -1))  # [num_reqs, num_kv_heads, group, head_dim]
    attended = scaled_dot_product_attention(packed, keys, values, attn_mask=mask[:, None, None], scale=scale)
    out.copy_(attended.reshape(out.shape))


def _decode(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor, scale: float, window: int
) -> None:
    """Attend one token. All query heads of one key head are rows of one product: keys are read once per group.

    ``query`` and ``out`` [1, num_heads, head_dim]; ``keys`` and ``values`` [1, num_kv_heads, seq_len, head_dim].
    """
    if window:
        keys, values = keys[:, :, -window:], values[:, :, -window:]
    packed = (1, keys.shape[1], -1, keys.shape[3])  # [1, num_kv_heads, group, head_dim]
    out.view(packed).copy_(scaled_dot_product_attention(query.view(packed), keys, values, scale=scale))


def _prefill(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor, scale: float, window: int
) -> None:
    """Attend the last ``query_len`` tokens of a sequence, causally.

    ``query`` and ``out`` [query_len, num_heads, head_dim]; ``keys`` and ``values`` as for :func:`_decode`.
    """
    query_len, seq_len = query.shape[0], keys.shape[2]
    mask = None
    if query_len != seq_len or (window and window < seq_len):
        mask = torch.ones(query_len, seq_len, dtype=torch.bool).tril(seq_len - query_len)
        if window:
            mask = mask.triu(seq_len - query_len - window + 1)
    attended = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=True,
    )
    out.copy_(attended[0].transpose(0, 1))


_LIBRARY = torch.library.Library("legato", "FRAGMENT")
_LIBRARY.define(
    "paged_sdpa(Tensor query, Tensor key_cache, Tensor value_cache, Tensor query_start_loc, Tensor seq_lens, "
    "Tensor block_table, Tensor(a!) workspace, Tensor(b!) out, float scale, int window) -> ()"
)
_LIBRARY.impl("paged_sdpa", _paged_sdpa, "CPU")
setattr(torch.ops.legato.paged_sdpa.default, PYTHON_KERNEL, _paged_sdpa)
