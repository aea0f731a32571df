"""Names of prefixes, and the blocks that hold them."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from legato.kvcache.block_table import BlockTable
from legato.kvcache.prefix_index import PrefixIndex, block_digest, root_digest

token_lists = st.lists(st.integers(0, 3), max_size=8)


def chain(salt, token_ids, block_size):
    digest = root_digest(salt)
    for start in range(0, len(token_ids), block_size):
        digest = block_digest(digest, token_ids[start : start + block_size])
    return digest


@given(token_lists, token_lists, st.sampled_from([b"", b"g"]), st.sampled_from([b"", b"g"]))
def test_two_chains_are_equal_only_for_equal_tokens_and_salts(left, right, left_salt, right_salt):
    same = (left, left_salt) == (right, right_salt)
    assert (chain(left_salt, left, 2) == chain(right_salt, right, 2)) == same


def test_the_same_block_after_another_prefix_has_another_name():
    assert chain(b"", [1, 2, 5, 6], 2) != chain(b"", [3, 4, 5, 6], 2)


def test_names_are_the_same_in_every_process():
    code = "from legato.kvcache.prefix_index import *; print(block_digest(root_digest(b'g'), [1, 70_000]).hex())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == block_digest(root_digest(b"g"), [1, 70_000]).hex()


def test_a_table_names_its_blocks_as_the_chain_does_while_its_tokens_grow():
    table = BlockTable(salt=b"s")
    token_ids = [1, 2, 3, 4]
    assert table.digest(1, token_ids, 2) == chain(b"s", token_ids, 2)
    token_ids += [5, 6]
    assert table.digest(2, token_ids, 2) == chain(b"s", token_ids, 2)
    assert table.digest(0, token_ids, 2) == chain(b"s", [1, 2], 2)


def test_the_first_block_of_a_name_keeps_it():
    index = PrefixIndex()
    index.register(b"a", 1)
    index.register(b"a", 2)
    assert index.find(b"a") == 1
    index.forget(2)
    assert index.find(b"a") == 1
    index.forget(1)
    assert index.find(b"a") is None
    assert len(index) == 0


def test_reset_drops_names_and_keeps_the_totals():
    index = PrefixIndex()
    index.register(b"a", 1)
    index.count(query_tokens=10, hit_tokens=4)
    index.count(query_tokens=5, hit_tokens=0)
    index.reset()
    index.forget(1)
    assert index.find(b"a") is None
    assert (index.query_tokens, index.hit_tokens) == (15, 4)
