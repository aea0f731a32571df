"""Blocks from bytes, and the error where not even one sequence fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.errors import ConfigError
from legato.kvcache.sizing import blocks_for_tokens, blocks_in_budget, bytes_per_block
from legato.kvcache.spec import FullAttentionSpec, LayerGroup, MLASpec, RecurrentSpec

ATTENTION = LayerGroup(name="full", layers=tuple(range(30)), spec=FullAttentionSpec(num_kv_heads=3, head_dim=64))
LATENT = LayerGroup(name="latent", layers=(30, 31), spec=MLASpec(latent_dim=512, rope_dim=64))
STATE = LayerGroup(name="state", layers=(32,), spec=RecurrentSpec(state_elements=1000))


def test_a_block_takes_its_bytes_in_every_layer_of_every_group():
    assert bytes_per_block([ATTENTION], 16, 2) == 30 * 2 * 16 * 3 * 64 * 2
    expected = 30 * 2 * 16 * 3 * 64 * 4 + 2 * 16 * 576 * 4 + 1000 * 4
    assert bytes_per_block([ATTENTION, LATENT, STATE], 16, 4) == expected


def test_a_sequence_needs_as_many_blocks_as_its_longest_group():
    assert blocks_for_tokens([ATTENTION, STATE], 33, 16) == 3
    assert blocks_for_tokens([STATE], 33, 16) == 1


@given(budget_bytes=st.integers(0, 10**9), max_model_len=st.integers(1, 4096), block_size=st.sampled_from([1, 16, 32]))
def test_the_blocks_fit_the_budget_and_hold_one_sequence_beside_the_null_block(budget_bytes, max_model_len, block_size):
    block_bytes = bytes_per_block([ATTENTION], block_size, 2)
    needed = blocks_for_tokens([ATTENTION], max_model_len, block_size) + 1
    try:
        num_blocks = blocks_in_budget(
            [ATTENTION], block_size=block_size, element_bytes=2, budget_bytes=budget_bytes, max_model_len=max_model_len
        )
    except ConfigError:
        assert budget_bytes < needed * block_bytes
    else:
        assert needed <= num_blocks
        assert num_blocks * block_bytes <= budget_bytes < (num_blocks + 1) * block_bytes


def test_the_error_says_what_is_needed_what_was_found_and_options_that_work():
    block_bytes = bytes_per_block([ATTENTION], 16, 2)
    options = {"block_size": 16, "element_bytes": 2}
    with pytest.raises(ConfigError) as error:
        blocks_in_budget([ATTENTION], budget_bytes=10 * block_bytes + 5, max_model_len=2048, **options)
    text = str(error.value)
    assert f"--max-model-len 2048, which needs 129 blocks of {block_bytes} bytes" in text
    assert f"{10 * block_bytes + 5} bytes for the KV cache, which hold 10 blocks" in text
    assert "--max-model-len 144" in text
    assert f"--kv-cache-memory-bytes {129 * block_bytes}" in text
    assert blocks_in_budget([ATTENTION], budget_bytes=10 * block_bytes, max_model_len=144, **options) == 10
    assert blocks_in_budget([ATTENTION], budget_bytes=129 * block_bytes, max_model_len=2048, **options) == 129


def test_where_nothing_fits_no_shorter_length_is_offered():
    with pytest.raises(ConfigError) as error:
        blocks_in_budget([ATTENTION], block_size=16, element_bytes=2, budget_bytes=-1, max_model_len=64)
    assert "--max-model-len" not in str(error.value.details["options"])
