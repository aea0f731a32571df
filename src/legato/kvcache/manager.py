"""Gives blocks to requests and takes them back; finds prefixes that are computed already. Torch-free.

Knows the layer groups only by how many blocks a sequence needs in each, so that new kinds of state change nothing here.
All groups share one block table per request, as long as the longest of them asks.
"""

from collections.abc import Sequence

from legato.config.engine import CacheConfig
from legato.kvcache.block_pool import BlockPool
from legato.kvcache.block_table import BlockTable
from legato.kvcache.prefix_index import PrefixIndex
from legato.kvcache.sizing import blocks_for_tokens
from legato.kvcache.spec import LayerGroup


class KVCacheManager:
    """The host side of the KV cache: pool, prefix index, and the rules that join them."""

    def __init__(self, config: CacheConfig, layer_groups: Sequence[LayerGroup]) -> None:
        self.block_size = config.block_size
        self.pool = BlockPool(config.num_blocks)
        self.index = PrefixIndex()
        self._layer_groups = tuple(layer_groups)
        self._prefix_caching = config.prefix_caching
        self.can_share = all(
            group.spec.blocks_needed(2 * config.block_size, config.block_size) == 2 for group in layer_groups
        )
        """Whether a block holds the state of its own tokens alone in every group, so that others can read it."""

    def new_table(self, group: str | None = None) -> BlockTable:
        """Return an empty table. Without prefix caching, only requests of the same ``group`` share blocks."""
        if not self.can_share:
            return BlockTable(salt=None)
        if self._prefix_caching:
            return BlockTable(salt=b"")
        return BlockTable(salt=None if group is None else group.encode())

    def blocks_needed(self, num_tokens: int) -> int:
        """Return the blocks that a sequence of ``num_tokens`` occupies."""
        return blocks_for_tokens(self._layer_groups, num_tokens, self.block_size)

    def open(
        self, table: BlockTable, token_ids: Sequence[int], *, reuse_prefix: bool, num_ahead: int = 0
    ) -> int | None:
        """Give an empty table the blocks of all its known tokens, computed ones first as far as they are found.

        ``num_ahead``: tokens behind the known ones for which there is to be room too, as a drafter works ahead.
        Returns the number of tokens that are computed already, always fewer than ``token_ids``; None, with nothing
        changed, where too few blocks are free. The whole sequence is given room at once: a prefill cut in chunks
        never stops half-way for want of blocks that a later request has taken.
        """
        assert not table.block_ids, "opened a table that holds blocks"
        cached = self._cached_prefix(table, token_ids) if reuse_prefix else []
        num_revived = sum(self.pool.num_owners(block_id) == 0 for block_id in cached)
        num_new = self.blocks_needed(len(token_ids) + num_ahead) - len(cached)
        if num_new > self.pool.num_free - num_revived:
            return None
        self.pool.touch(cached)
        table.block_ids = cached
        table.num_registered = len(cached)
        num_computed_tokens = len(cached) * self.block_size
        self._extend(table, num_new)
        return num_computed_tokens

    def grow(self, table: BlockTable, num_tokens: int) -> bool:
        """Make room for ``num_tokens`` tokens in all; return False, with nothing changed, where blocks are lacking."""
        if num_tokens <= table.num_slots:
            return True  # no group needs more than a block per `block_size` tokens
        num_new = self.blocks_needed(num_tokens) - len(table.block_ids)
        if num_new > self.pool.num_free:
            return False
        if num_new > 0:
            self._extend(table, num_new)
        return True

    def register(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Offer the blocks that are full and computed to later requests of the same prefix."""
        num_full = num_computed_tokens // self.block_size
        if table.salt is None or num_full <= table.num_registered:
            return
        for index in range(table.num_registered, num_full):
            self.index.register(table.digest(index, token_ids, self.block_size), table.block_ids[index])
        table.num_registered = num_full

    def release(self, table: BlockTable) -> None:
        """Take all blocks back. The last block is reused first, because a prefix is of no use without its start."""
        self.pool.free(table.block_ids[::-1])
        table.block_ids = []
        table.num_slots = 0
        table.num_registered = 0

    def count_lookup(self, *, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        """Count one request's lookup in the prefix cache, where there is one."""
        if self._prefix_caching and self.can_share:
            self.index.count(query_tokens=num_prompt_tokens, hit_tokens=num_cached_tokens)

    def _cached_prefix(self, table: BlockTable, token_ids: Sequence[int]) -> list[int]:
        cached: list[int] = []
        if table.salt is None:
            return cached
        # One token must be left to compute: without it there are no logits.
        for index in range((len(token_ids) - 1) // self.block_size):
            block_id = self.index.find(table.digest(index, token_ids, self.block_size))
            if block_id is None:
                break
            cached.append(block_id)
        return cached

    def _extend(self, table: BlockTable, count: int) -> None:
        taken = self.pool.take(count)
        for block_id in taken:
            self.index.forget(block_id)
        table.block_ids += taken
        table.num_slots = len(table.block_ids) * self.block_size
