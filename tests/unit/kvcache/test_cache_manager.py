"""Blocks given to requests and taken back, with prefixes found again."""

import pytest

from legato.config.engine import CacheConfig
from legato.kvcache.manager import KVCacheManager
from legato.kvcache.spec import FullAttentionSpec, LayerGroup, MLASpec, RecurrentSpec

ATTENTION = LayerGroup(name="full", layers=(0,), spec=FullAttentionSpec(num_kv_heads=1, head_dim=4))
LATENT = LayerGroup(name="latent", layers=(1,), spec=MLASpec(latent_dim=8, rope_dim=2))
STATE = LayerGroup(name="state", layers=(2,), spec=RecurrentSpec(state_elements=16))


def manager(num_blocks=9, *, prefix_caching=True, groups=(ATTENTION,)):
    return KVCacheManager(CacheConfig(block_size=4, num_blocks=num_blocks, prefix_caching=prefix_caching), groups)


def computed(cache, token_ids, group=None):
    """Return the table of a request whose tokens have all been computed."""
    table = cache.new_table(group)
    assert cache.open(table, token_ids, reuse_prefix=True) is not None
    cache.register(table, token_ids, len(token_ids))
    return table


def test_a_new_request_finds_the_full_blocks_of_its_prefix_in_use_or_free():
    cache = manager()
    first = computed(cache, list(range(10)))
    second = cache.new_table()
    assert cache.open(second, [*range(9), 99], reuse_prefix=True) == 8
    assert second.block_ids[:2] == first.block_ids[:2]
    assert second.block_ids[2] != first.block_ids[2]
    cache.release(first)
    cache.release(second)
    assert cache.pool.num_free == 8
    third = cache.new_table()
    assert cache.open(third, [0, 1, 2, 3, 77], reuse_prefix=True) == 4


def test_the_whole_prompt_is_never_found_for_one_token_must_be_computed():
    cache = manager()
    cache.release(computed(cache, list(range(8))))
    assert cache.open(cache.new_table(), list(range(8)), reuse_prefix=True) == 4
    assert cache.open(cache.new_table(), list(range(9)), reuse_prefix=True) == 8


def test_blocks_that_are_not_computed_yet_are_not_found():
    cache = manager()
    table = cache.new_table()
    cache.open(table, list(range(12)), reuse_prefix=True)
    cache.register(table, list(range(12)), 7)
    assert cache.open(cache.new_table(), list(range(12)), reuse_prefix=True) == 4


def test_a_request_may_decline_what_is_cached():
    cache = manager()
    cache.release(computed(cache, list(range(8))))
    assert cache.open(cache.new_table(), list(range(9)), reuse_prefix=False) == 0


def test_a_block_handed_out_again_is_not_found_any_more():
    cache = manager(num_blocks=4)
    cache.release(computed(cache, list(range(12))))
    cache.release(computed(cache, [50, 51, 52, 53, 54]))
    # The end of the old sequence was overwritten first; its start is still of use.
    assert cache.open(cache.new_table(), list(range(12)), reuse_prefix=True) == 4


def test_a_cached_block_that_is_free_counts_as_needed_when_room_is_sought():
    cache = manager(num_blocks=4)
    cache.release(computed(cache, list(range(8))))
    blocker = cache.new_table()
    assert cache.open(blocker, [90], reuse_prefix=True) == 0
    table = cache.new_table()
    assert cache.open(table, [*range(8), 8, 9, 10, 11, 12], reuse_prefix=True) is None
    assert table.block_ids == []
    assert cache.pool.num_free == 2
    assert cache.open(table, [*range(8)], reuse_prefix=True) == 4


def test_growing_takes_blocks_only_at_a_border_and_all_or_none():
    cache = manager(num_blocks=4)
    table = cache.new_table()
    cache.open(table, [1, 2, 3], reuse_prefix=True)
    assert cache.grow(table, 4)
    assert len(table.block_ids) == 1
    assert cache.grow(table, 5)
    assert len(table.block_ids) == 2
    assert not cache.grow(table, 13)
    assert len(table.block_ids) == 2
    assert cache.grow(table, 12)


def test_two_requests_that_compute_the_same_block_at_once_both_go_on():
    cache = manager()
    first, second = cache.new_table(), cache.new_table()
    tokens = list(range(5))
    for table in (first, second):
        assert cache.open(table, tokens, reuse_prefix=True) == 0
    for table in (first, second):
        cache.register(table, tokens, 5)
    third = cache.new_table()
    cache.open(third, tokens, reuse_prefix=True)
    assert third.block_ids[0] == first.block_ids[0] != second.block_ids[0]
    for table in (first, second, third):
        cache.release(table)
    assert cache.pool.num_free == 8


@pytest.mark.parametrize(("left", "right", "found"), [("g", "g", 4), ("g", "h", 0), (None, None, 0), ("g", None, 0)])
def test_without_prefix_caching_only_requests_of_one_group_share(left, right, found):
    cache = manager(prefix_caching=False)
    computed(cache, list(range(6)), group=left)
    assert cache.open(cache.new_table(right), list(range(6)), reuse_prefix=True) == found
    cache.count_lookup(num_prompt_tokens=6, num_cached_tokens=found)
    assert cache.index.query_tokens == 0


def test_the_groups_share_one_table_as_long_as_the_longest_needs():
    cache = manager(groups=(STATE, ATTENTION, LATENT))
    assert cache.blocks_needed(9) == 3
    assert not cache.can_share
    assert manager(groups=(ATTENTION, LATENT)).can_share
    assert manager(groups=(STATE,)).blocks_needed(999) == 1
