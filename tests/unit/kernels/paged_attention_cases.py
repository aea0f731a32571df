"""Random paged batches for the kernels' tests. What no sequence has written is not a number."""

from dataclasses import dataclass

import torch

from legato.kernels.paged_attention import paged_attention_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the kernels are specialised for."""

    num_kv_heads: int = 2
    group: int = 2
    head_dim: int = 64
    block_size: int = 16
    window: int | None = None
    dtype: torch.dtype = torch.float32

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedBatch:
    """Arguments of the kernels, and the answer."""

    shape: Shape
    query: torch.Tensor  # [num_tokens, num_heads, head_dim], a slice of a wider tensor
    key_cache: torch.Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: torch.Tensor
    query_start_loc: torch.Tensor  # [num_reqs + 1] int32
    seq_lens: torch.Tensor  # [num_reqs] int32
    block_table: torch.Tensor  # [num_reqs, max_blocks] int32
    scale: float

    @property
    def num_tokens(self) -> int:
        return int(self.query_start_loc[-1])

    def expected(self) -> torch.Tensor:
        """Return [num_tokens, num_heads, head_dim] float32, zeros for padded tokens."""
        return paged_attention_reference(
            self.query,
            self.key_cache,
            self.value_cache,
            query_start_loc=self.query_start_loc,
            seq_lens=self.seq_lens,
            block_table=self.block_table,
            scale=self.scale,
            window=self.shape.window,
        )


def draw_batch(
    shape: Shape, query_lens: list[int], seq_lens: list[int], *, padded_tokens: int = 0, device: str = "cpu"
) -> PagedBatch:
    """Return sequences whose blocks lie scattered over the cache."""
    blocks_of = [-(-seq_len // shape.block_size) for seq_len in seq_lens]
    order = (torch.randperm(sum(blocks_of)) + 1).to(torch.int32)
    table = torch.zeros(len(seq_lens), max(blocks_of) + 1, dtype=torch.int32)
    cache_shape = (sum(blocks_of) + 1, shape.block_size, shape.num_kv_heads, shape.head_dim)
    key_cache, value_cache = torch.full(cache_shape, float("nan")), torch.full(cache_shape, float("nan"))
    for index, (seq_len, blocks) in enumerate(zip(seq_lens, order.split(blocks_of), strict=True)):
        table[index, : len(blocks)] = blocks
        slots = (blocks[:, None] * shape.block_size + torch.arange(shape.block_size)).flatten()[:seq_len].long()
        for cache in (key_cache, value_cache):
            cache.flatten(0, 1)[slots] = torch.randn(seq_len, *cache_shape[2:])
    heads = torch.randn(sum(query_lens) + padded_tokens, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
    return PagedBatch(
        shape=shape,
        query=heads.to(shape.dtype).to(device)[:, : shape.num_heads],
        key_cache=key_cache.to(shape.dtype).to(device),
        value_cache=value_cache.to(shape.dtype).to(device),
        query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32).to(device),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=device),
        block_table=table.to(device),
        scale=shape.head_dim**-0.5,
    )


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ‖found - expected‖ / ‖expected‖; not a number where a value is not."""
    return ((found.float() - expected.float()).norm() / expected.float().norm()).item()
