"""The block pool against a model of it in plain lists."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.kvcache.block_pool import NULL_BLOCK, BlockPool


def test_the_null_block_is_never_handed_out_nor_counted():
    pool = BlockPool(5)
    assert (pool.num_free, pool.num_total) == (4, 4)
    assert sorted(pool.take(4)) == [1, 2, 3, 4]
    assert pool.free_blocks() == []
    with pytest.raises(AssertionError, match="null block"):
        pool.touch([NULL_BLOCK])


def test_blocks_are_reused_in_the_order_in_which_they_were_freed():
    pool = BlockPool(5)
    first, second, third = pool.take(3)
    pool.free([second, third])
    pool.free([first])
    assert pool.free_blocks() == [4, second, third, first]


def test_a_touched_free_block_is_in_use_again_and_loses_its_place():
    pool = BlockPool(4)
    blocks = pool.take(3)
    pool.free(blocks)
    pool.touch([blocks[1]])
    assert pool.num_owners(blocks[1]) == 1
    assert pool.take(2) == [blocks[0], blocks[2]]


def test_a_shared_block_is_free_only_when_its_last_owner_has_left():
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.touch([block])
    pool.free([block])
    assert block not in pool.free_blocks()
    pool.free([block])
    assert pool.free_blocks()[-1] == block


def test_more_blocks_than_are_free_and_a_second_free_are_our_own_errors():
    pool = BlockPool(3)
    with pytest.raises(AssertionError, match="more blocks than are free"):
        pool.take(3)
    (block,) = pool.take(1)
    pool.free([block])
    with pytest.raises(AssertionError, match="that is free"):
        pool.free([block])


@given(
    num_blocks=st.integers(2, 12),
    operations=st.lists(st.tuples(st.sampled_from(["take", "touch", "free"]), st.integers(0, 100)), max_size=60),
)
@settings(max_examples=150, deadline=None)
def test_the_pool_behaves_as_a_list_of_free_blocks_and_a_count_of_owners(num_blocks, operations):
    pool = BlockPool(num_blocks)
    free = list(range(1, num_blocks))
    owners: Counter[int] = Counter()
    for operation, choice in operations:
        if operation == "take" and free:
            count = choice % len(free) + 1
            assert pool.take(count) == free[:count]
            owners.update(free[:count])
            del free[:count]
        elif operation == "touch":
            block_id = choice % (num_blocks - 1) + 1
            pool.touch([block_id])
            owners[block_id] += 1
            if block_id in free:
                free.remove(block_id)
        elif operation == "free" and +owners:
            block_id = sorted(+owners)[choice % len(+owners)]
            pool.free([block_id])
            owners[block_id] -= 1
            if owners[block_id] == 0:
                free.append(block_id)
        assert pool.free_blocks() == free
        assert pool.num_free == len(free)
        assert all(pool.num_owners(block_id) == owners[block_id] for block_id in range(num_blocks))
