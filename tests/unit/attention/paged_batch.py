"""Batches over scattered blocks for one layer, with the oracle's answer. The cache holds the step's own tokens too."""

import torch

from legato.attention.planning import PreparedBatch
from legato.attention.protocol import AttentionBackend, AttentionLayer, AttentionMetadata
from legato.kernels.paged_attention import paged_attention_reference
from legato.kvcache.storage import LayerCache

HEADS = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
MIXED = ((1, 50), (9, 9), (30, 45), (4, 36))
"""(query_len, seq_len) of each request."""
SCALE = 0.3


class Batch:
    """What no sequence has written is not a number."""

    def __init__(
        self,
        requests: tuple[tuple[int, int], ...],
        *,
        uniform: bool = False,
        num_padded: int = 0,
        block_size: int = 16,
        seed: int = 0,
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        width = requests[0][0] if uniform else 0
        self.num_real = sum(query_len for query_len, _ in requests)
        self.prepared = PreparedBatch(
            num_reqs=len(requests) + num_padded,
            query_len=width if uniform else None,
            query_lens=tuple(query_len for query_len, _ in requests),
            seq_lens=tuple(seq_len for _, seq_len in requests),
        )
        query_lens = [query_len for query_len, _ in requests] + [width] * num_padded
        seq_lens = [seq_len for _, seq_len in requests] + [width] * num_padded
        num_tokens = sum(query_lens) + (0 if uniform else num_padded)
        counts = [-(-seq_len // block_size) for _, seq_len in requests]
        blocks = (torch.randperm(sum(counts), generator=random) + 1).split(counts)
        table = torch.zeros(len(query_lens), max(counts) + 2, dtype=torch.int32)
        shape = (sum(counts) + 1, block_size, HEADS["num_kv_heads"], HEADS["head_dim"])
        self.cache = LayerCache(key=torch.full(shape, torch.nan), value=torch.full(shape, torch.nan))
        for index, ((_, seq_len), own) in enumerate(zip(requests, blocks, strict=True)):
            table[index, : len(own)] = own
            slots = (own[:, None] * block_size + torch.arange(block_size)).flatten()[:seq_len]
            for tensor in (self.cache.key, self.cache.value):
                tensor.flatten(0, 1)[slots] = torch.randn(seq_len, *shape[2:], generator=random)
        # Queries are part of what one product gives: tokens lie apart.
        heads = torch.randn(num_tokens, HEADS["num_heads"] + 2 * HEADS["num_kv_heads"], shape[3], generator=random)
        self.query = heads[:, : HEADS["num_heads"]]
        self.out = torch.full(self.query.shape, torch.nan)
        self.metadata = AttentionMetadata(
            query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32),
            seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
            block_table=table,
            slot_mapping=torch.zeros(num_tokens, dtype=torch.int64),
            num_tokens=num_tokens,
            num_reqs=len(query_lens),
            query_len=width if uniform else None,
            max_query_len=max(query_lens),
            key_ints={},
        )

    def run(
        self,
        backend: AttentionBackend,
        *,
        window: int | None = None,
        index: int = 0,
        metadata: AttentionMetadata | None = None,
    ) -> None:
        """Run one layer and compare its real tokens with the oracle."""
        layer = AttentionLayer(index=index, **HEADS, scale=SCALE, window=window)
        backend.forward(layer, self.query, self.cache, metadata or self.metadata, self.out)
        expected = paged_attention_reference(
            self.query,
            self.cache.key,
            self.cache.value,
            query_start_loc=self.metadata.query_start_loc,
            seq_lens=self.metadata.seq_lens,
            block_table=self.metadata.block_table,
            scale=SCALE,
            window=window,
        )
        real = slice(0, self.num_real)
        torch.testing.assert_close(self.out[real].double(), expected[real].double(), rtol=1e-4, atol=1e-5)
