"""Tiles and splits: what must hold for every batch, checked without a GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.graphs.ladder import ladder
from legato.kernels import paged_attention_configs
from legato.kernels.paged_attention_configs import (
    MAX_QUERY_LEN,
    MAX_ROWS,
    MAX_SPLITS,
    MIN_SHARE,
    TileConfig,
    decode_choice,
    decode_config,
    fitted,
    num_splits,
    padded_head,
    varlen_config,
    workspace_rows,
)

HEADS = st.sampled_from([16, 64, 80, 96, 128, 192, 256])
ELEMENT_BYTES = st.sampled_from([2, 4])
SHARED_MEMORY_BYTES = 227 * 1024
"""What a program may use on a Hopper GPU."""
CONSUMER_BYTES = 99 * 1024
"""On one for the desktop."""


def tile_bytes(config: TileConfig, head_dim: int, element_bytes: int) -> int:
    """Shared memory of queries, and of keys and values in all stages but the one that is being read."""
    rows = config.block_m + 2 * config.block_n * (config.num_stages - 1)
    return rows * padded_head(head_dim) * element_bytes


@given(HEADS, ELEMENT_BYTES, st.integers(1, MAX_ROWS))
def test_a_decode_tile_holds_its_rows_and_fits_in_shared_memory(head_dim: int, element_bytes: int, rows: int) -> None:
    config = decode_config(rows=rows, head_dim=head_dim, element_bytes=element_bytes)
    assert config.block_m >= max(rows, 16)
    assert tile_bytes(config, head_dim, element_bytes) <= SHARED_MEMORY_BYTES


@given(HEADS, ELEMENT_BYTES, st.integers(1, MAX_ROWS), st.integers(1, 8192))
def test_a_varlen_tile_holds_a_whole_token(head_dim: int, element_bytes: int, group: int, max_query_len: int) -> None:
    config = varlen_config(max_query_len=max_query_len, group=group, head_dim=head_dim, element_bytes=element_bytes)
    assert config.block_m >= group
    assert config.block_m & (config.block_m - 1) == 0
    assert tile_bytes(config, head_dim, element_bytes) <= SHARED_MEMORY_BYTES


@given(
    num_reqs=st.integers(1, 1024),
    num_kv_heads=st.integers(1, 16),
    group=st.integers(1, 16),
    query_len=st.integers(1, MAX_QUERY_LEN),
    max_context=st.integers(1, 131_072),
    multiprocessors=st.integers(1, 160),
)
def test_partial_results_of_any_batch_fit_in_the_workspace(
    num_reqs: int, num_kv_heads: int, group: int, query_len: int, max_context: int, multiprocessors: int
) -> None:
    rows = query_len * group
    if rows > MAX_ROWS:
        return
    splits = num_splits(num_pairs=num_reqs * num_kv_heads, max_context=max_context, multiprocessors=multiprocessors)
    assert 1 <= splits <= MAX_SPLITS
    assert splits == 1 or splits * num_reqs * num_kv_heads * rows <= workspace_rows(
        multiprocessors=multiprocessors, group=group
    )


@pytest.mark.parametrize("num_pairs", [67, 132, 256, 2048])
def test_a_batch_that_gives_each_multiprocessor_a_program_is_not_split(num_pairs: int) -> None:
    assert num_splits(num_pairs=num_pairs, max_context=8192, multiprocessors=132) == 1


@pytest.mark.parametrize("num_pairs", [1, 8, 16, 24, 64])
def test_a_batch_that_leaves_the_gpu_idle_is_split_until_it_is_busy(num_pairs: int) -> None:
    splits = num_splits(num_pairs=num_pairs, max_context=131_072, multiprocessors=132)
    assert splits == MAX_SPLITS or 132 - num_pairs < splits * num_pairs <= 132


def test_no_part_is_made_for_keys_that_cannot_be() -> None:
    assert num_splits(num_pairs=1, max_context=MIN_SHARE, multiprocessors=132) == 1
    assert num_splits(num_pairs=1, max_context=3 * MIN_SHARE, multiprocessors=132) == 3


@given(HEADS, ELEMENT_BYTES, st.integers(1, MAX_ROWS), st.integers(1, 8192))
def test_tiles_are_cut_only_on_a_gpu_with_less_shared_memory_and_then_fit(
    head_dim: int, element_bytes: int, rows: int, max_query_len: int
) -> None:
    shape = {"head_dim": head_dim, "element_bytes": element_bytes}
    for config in decode_config(rows=rows, **shape), varlen_config(max_query_len=max_query_len, group=4, **shape):
        assert fitted(config, **shape, shared_memory=SHARED_MEMORY_BYTES) == config
        cut = fitted(config, **shape, shared_memory=CONSUMER_BYTES)
        assert cut.block_m == config.block_m
        assert tile_bytes(cut, **shape) <= CONSUMER_BYTES or (cut.num_stages, cut.block_n) == (1, 16)


def test_each_warp_keeps_keys_that_matrix_units_take() -> None:
    apart = TileConfig(block_m=16, block_n=128, num_warps=4, num_stages=3, at_once=True, warps_apart=True)
    cut = fitted(apart, head_dim=256, element_bytes=2, shared_memory=16 << 10)
    assert (cut.num_stages, cut.block_n) == (1, 64)


def choice(*, query_len: int = 1, element_bytes: int = 2, num_reqs: int = 64) -> tuple[TileConfig, int]:
    return decode_choice(
        query_len=query_len,
        group=3,
        head_dim=64,
        element_bytes=element_bytes,
        num_reqs=num_reqs,
        num_kv_heads=3,
        max_context=4096,
        multiprocessors=132,
    )


def test_a_decode_that_was_measured_is_done_as_it_was_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rule = choice()
    monkeypatch.setitem(paged_attention_configs.DECODES, (64, 256), (128, 2, 5, 4, True, True))
    measured = TileConfig(block_m=16, block_n=128, num_warps=2, num_stages=5, at_once=True, warps_apart=True)
    assert choice() == (measured, 4)
    assert choice(num_reqs=33) == (measured, 4)
    assert choice(num_reqs=32) != choice()
    assert choice(query_len=6)[0].block_m == 32, "more rows than were measured"
    assert choice(element_bytes=4)[0] != by_rule[0] and not choice(element_bytes=4)[0].at_once


@given(query_len=st.integers(1, 5), num_reqs=st.integers(33, 64), splits=st.integers(1, MAX_SPLITS))
def test_a_measured_decode_fits_in_the_workspace(query_len: int, num_reqs: int, splits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(paged_attention_configs.DECODES, (64, 256), (64, 4, 3, splits, True, False))
        made = choice(query_len=query_len, num_reqs=num_reqs)[1]
    assert 1 <= made <= splits
    assert made * num_reqs * 3 * query_len * 3 <= workspace_rows(multiprocessors=132, group=3)


@pytest.mark.parametrize("query_len", [1, 4])
def test_a_batch_is_decoded_as_it_is_when_padded_to_the_size_of_a_graph(query_len: int) -> None:
    sizes = ladder(256)
    for num_reqs in range(1, 257):
        padded = min(size for size in sizes if size >= num_reqs)
        assert choice(query_len=query_len, num_reqs=num_reqs) == choice(query_len=query_len, num_reqs=padded)
