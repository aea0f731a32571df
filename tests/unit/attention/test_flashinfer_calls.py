"""What FlashInfer is asked, answered by a double of its documented entry points and compared with the oracle."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flashinfer_double import PLANS, BatchDecodeWithPagedKVCacheWrapper, modules
from hypothesis import given
from hypothesis import strategies as st
from paged_batch import HEADS, MIXED, Batch
from test_flashinfer_support import AMPERE, HOPPER, setup

from legato.attention.backends import flashinfer_prefill
from legato.attention.backends.flashinfer import FlashInferBackend
from legato.attention.backends.flashinfer_decode import causal_mask, workspace_bytes
from legato.attention.backends.flashinfer_planned_decode import plan_bytes, planned_decode_bytes
from legato.attention.backends.flashinfer_prefill import page_table
from legato.attention.backends.flashinfer_prefill import workspace_bytes as prefill_workspace_bytes
from legato.attention.backends.flashinfer_support import UniformKernel
from legato.attention.compilation import CompilingBackend
from legato.attention.planning import PlanningBackend
from legato.device.recording import RecordingDevice
from legato.errors import BackendError, GraphCaptureError


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)


def backend(**fields: Any) -> FlashInferBackend:
    device = replace(HOPPER, kind="cpu", num_multiprocessors=4)  # Hopper's choices, the CPU's memory
    return FlashInferBackend(setup(device, **HEADS | {"dtype": "float32"} | fields))


@pytest.mark.parametrize("query_len", [1, 2, 3, 8, 17, 32])
def test_uniform_batches_of_any_width_are_computed_without_a_plan(query_len: int) -> None:
    requests = ((query_len, query_len), (query_len, 77), (query_len, 200))
    Batch(requests, uniform=True, num_padded=2).run(backend())
    assert not PLANS


@pytest.mark.parametrize("window", [1, 20, 500])
def test_single_tokens_keep_to_a_window_without_a_plan(window: int) -> None:
    Batch(((1, 1), (1, 77), (1, 200)), uniform=True, num_padded=1).run(backend(), window=window)
    assert not PLANS


@pytest.mark.parametrize(("query_len", "window"), [(3, 20), (33, None)])
def test_a_width_that_xqa_computes_wrongly_or_not_at_all_is_planned(query_len: int, window: int | None) -> None:
    requests = ((query_len, query_len), (query_len, 77))
    Batch(requests, uniform=True, num_padded=1).run(backend(), window=window)
    assert len(PLANS) == 1


@pytest.mark.parametrize("window", [None, 1, 20])
@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_any_mix_is_planned_over_its_real_requests(window: int | None, block_size: int) -> None:
    Batch(MIXED, num_padded=3, block_size=block_size).run(backend(block_size=block_size), window=window)
    assert [plan["starts"] for plan in PLANS] == [[0, 1, 10, 40, 44]]


def test_decode_is_planned_where_no_kernel_reads_lengths_on_the_device() -> None:
    Batch(((1, 9), (1, 30)), uniform=True, num_padded=1, block_size=8).run(backend(block_size=8))
    assert len(PLANS) == 1


def test_layers_of_a_step_share_a_plan_per_window() -> None:
    batch, served = Batch(MIXED), backend()
    for index, window in enumerate((None, 20, None, 20)):
        batch.run(served, window=window, index=index)
    assert [plan["window_left"] for plan in PLANS] == [-1, 19]


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_graphs_segments_are_planned_anew_at_each_replay_though_their_metadata_is_the_same_object(
    num_layers: int,
) -> None:
    served, first, second = backend(), Batch(MIXED), Batch(((9, 9), (4, 99), (1, 50), (30, 31)), seed=1)
    shared = replace(first.metadata, block_table=torch.zeros(4, 9, dtype=torch.int32), max_query_len=30)
    for batch in (first, second):
        shared.query_start_loc.copy_(batch.metadata.query_start_loc)
        shared.seq_lens.copy_(batch.metadata.seq_lens)
        shared.block_table.zero_()[:, : batch.metadata.block_table.shape[1]] = batch.metadata.block_table
        for index in range(num_layers):
            batch.run(served, index=index, metadata=shared)
    assert len(PLANS) == 2


def test_another_models_layers_are_planned_for_their_own_batch() -> None:
    served = backend()
    Batch(MIXED).run(served, index=3)
    Batch(((5, 5), (2, 17)), seed=1).run(served, index=4)  # a draft model's layer, numbered after the target's
    assert len(PLANS) == 2


def test_kernels_of_every_kind_of_step_are_called_once_before_any_step_and_told_as_they_begin() -> None:
    told: list[tuple[int, int, str]] = []
    backend().compile_kernels((1, 4), lambda *progress: told.append(progress))
    assert told == [(0, 3, "query_len 1"), (1, 3, "query_len 4"), (2, 3, "mixed batches")]
    assert len(PLANS) == 1


def test_a_kernel_that_does_not_compile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("Ninja build failed")

    monkeypatch.setattr(sys.modules["flashinfer.decode"], "trtllm_batch_decode_with_kv_cache", fail)
    with pytest.raises(BackendError, match="query_len 1") as caught:
        backend().compile_kernels((1,), lambda *progress: None)
    assert "Ninja build failed" in str(caught.value)


def test_the_backend_can_be_asked_to_compile() -> None:
    assert isinstance(backend(), CompilingBackend)


def test_a_mask_has_a_bit_for_each_token_that_a_row_sees() -> None:
    for query_len in range(2, 33):
        mask = causal_mask(query_len, num_reqs=3)
        assert mask.dtype is torch.uint16
        assert mask.shape == (3, query_len, 2)
        for row, words in enumerate(mask[2].tolist()):
            assert [words[column // 16] >> column % 16 & 1 for column in range(32)] == [
                int(column <= row) for column in range(32)
            ]


def test_the_workspace_holds_a_tile_of_results_per_multiprocessor_beside_the_semaphores() -> None:
    tiles = 4  # 32 tokens × 4 grouped heads, in tiles of 32 rows
    assert workspace_bytes(setup(HOPPER), UniformKernel.XQA) >= (8 << 20) + 132 * tiles * 32 * (128 * 2 + 8)


def test_the_workspace_of_plans_grows_with_the_heads_that_share_a_key_head() -> None:
    assert prefill_workspace_bytes(setup(HOPPER)) == 128 << 20
    shared = setup(HOPPER, num_heads=32, num_kv_heads=1)
    assert prefill_workspace_bytes(shared) == 32 * 264 * 128 * 129 * 4


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair) if pair[0] else 0)),
        min_size=1,
        max_size=8,
    ).filter(lambda requests: any(query_len for query_len, _ in requests)),
    block_size=st.sampled_from([1, 4, 16]),
)
def test_page_lists_name_each_requests_blocks_in_order(requests: list[tuple[int, int]], block_size: int) -> None:
    starts = np.cumsum([0] + [query_len for query_len, _ in requests])
    seq_lens = np.array([seq_len for _, seq_len in requests])
    pages = page_table(starts, seq_lens, max_blocks=50, block_size=block_size)
    real = [(row, query_len, seq_len) for row, (query_len, seq_len) in enumerate(requests) if query_len]
    assert np.diff(pages.query_start).tolist() == [query_len for _, query_len, _ in real]
    for index, (row, _, seq_len) in enumerate(real):
        own = pages.cells[pages.page_start[index] : pages.page_start[index + 1]]
        assert own.tolist() == [row * 50 + block for block in range(-(-seq_len // block_size))]
        assert (len(own) - 1) * block_size + pages.last_page_len[index] == seq_len
    assert pages.num_tokens == starts[-1]


ONE_EACH = Batch(((1, 1), (1, 16), (1, 17), (1, 200)), uniform=True, num_padded=2)


def planning(**fields: Any) -> FlashInferBackend:
    """As on a GPU whose kernels all need plans."""
    device = replace(AMPERE, kind="cpu", num_multiprocessors=4)
    return FlashInferBackend(setup(device, **HEADS | {"dtype": "float32"} | fields))


def windowed(*windows: int | None) -> FlashInferBackend:
    asked = setup(replace(AMPERE, kind="cpu", num_multiprocessors=4), **HEADS | {"dtype": "float32"})
    return FlashInferBackend(replace(asked, model=replace(asked.model, sliding_windows=windows)))


def test_a_backend_is_told_of_exactly_the_batches_that_it_plans() -> None:
    assert isinstance(backend(), PlanningBackend)
    assert [backend().plans(query_len) for query_len in (1, None)] == [False, True]
    assert [planning().plans(query_len) for query_len in (1, None)] == [True, True]
    assert [planning(lengths_on_host=False).plans(query_len) for query_len in (1, None)] == [False, False]


def test_single_tokens_are_planned_from_lengths_on_the_host_at_their_padded_size() -> None:
    served = planning()
    served.prepare(ONE_EACH.prepared)
    ONE_EACH.run(served)
    assert [plan["pages"] for plan in PLANS] == [[0, 1, 2, 4, 17, 18, 19]]


def test_a_planned_decode_plans_each_window_before_the_step() -> None:
    served = windowed(None, 20, None)
    served.prepare(ONE_EACH.prepared)
    assert [plan["window_left"] for plan in PLANS] == [-1, 19]
    for index, window in enumerate((None, 20, None)):
        ONE_EACH.run(served, window=window, index=index)
    assert len(PLANS) == 2


def test_plans_of_batches_of_all_sizes_take_turns_in_the_same_memory() -> None:
    served = planning()
    batches = [Batch(((1, 40 + seed),) * size, uniform=True, seed=seed) for seed, size in enumerate((3, 1, 3, 3, 8, 1))]
    for batch in batches:
        served.prepare(batch.prepared)
        batch.run(served)
    assert len(PLANS) == 6


def test_a_mixed_step_that_was_prepared_asks_its_metadata_for_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    served, batch = planning(), Batch(MIXED, num_padded=3)
    monkeypatch.setattr(flashinfer_prefill, "_lengths_on_device", None)
    served.prepare(batch.prepared)
    batch.run(served)
    assert [plan["starts"] for plan in PLANS] == [[0, 1, 10, 40, 44]]


@pytest.mark.parametrize("batch", [Batch(MIXED), ONE_EACH], ids=["mixed", "single tokens"])
def test_a_step_that_was_not_prepared_is_not_served_by_an_older_plan(batch: Batch) -> None:
    served = planning()
    served.prepare(batch.prepared)
    batch.run(served)
    other = Batch(tuple((query_len, seq_len + 30) for query_len, seq_len in ((1, 3),) * 6), uniform=True, seed=1)
    other.run(served)
    assert "starts" in PLANS[-1], "planned from what the device knows"


def test_a_step_whose_lengths_grew_since_its_plan_is_refused_or_wrong() -> None:
    served, grown = planning(), Batch(((1, 2), (1, 17), (1, 18), (1, 201)), uniform=True, num_padded=2)
    served.prepare(ONE_EACH.prepared)
    with pytest.raises(AssertionError):
        grown.run(served)


def test_a_plan_inside_a_capture_is_refused() -> None:
    served, capture = planning(), RecordingDevice().begin_capture()
    try:
        with pytest.raises((GraphCaptureError, RuntimeError), match="captur"):
            served.prepare(ONE_EACH.prepared)
    finally:
        capture.abandon()


def test_a_plan_for_another_size_than_its_wrappers_is_refused_and_so_is_memory_under_way() -> None:
    wrapper = BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(1),
        "NHD",
        use_cuda_graph=True,
        use_tensor_cores=True,
        paged_kv_indptr_buffer=torch.zeros(3, dtype=torch.int32),
        paged_kv_indices_buffer=torch.zeros(9, dtype=torch.int32),
        paged_kv_last_page_len_buffer=torch.zeros(2, dtype=torch.int32),
        backend="fa2",
    )
    wrapper.reset_workspace_buffer(torch.zeros(1), torch.zeros(64, dtype=torch.uint8))

    def plan(*page_starts: int) -> None:
        starts = torch.tensor(page_starts, dtype=torch.int32)
        arguments = (starts, starts[:0], torch.ones(len(starts) - 1, dtype=torch.int32), 8, 2, 64, 16)
        wrapper.plan(*arguments, window_left=-1, q_data_type=torch.float32)

    with pytest.raises(ValueError, match="batch size"):
        plan(0, 1, 2, 3)
    plan(0, 1, 2)
    with pytest.raises(AssertionError, match="before it is copied"):
        plan(0, 2, 3)


@pytest.mark.parametrize(
    ("heads", "tiles", "rows"),
    [((32, 8), 319, 16), ((8, 8), 271, 16), ((64, 2), 383, 64), ((80, 1), 415, 128), ((32, 32), 271, 16)],
)
def test_a_plan_and_its_partial_results_fit_the_largest_batch(heads: tuple[int, int], tiles: int, rows: int) -> None:
    num_heads, num_kv_heads = heads
    given = setup(AMPERE, num_heads=num_heads, num_kv_heads=num_kv_heads)
    assert planned_decode_bytes(given) == num_heads * tiles * rows * 129 * 4
    arrays = [4 * tiles] * 3 + [4 * 257, 4, 4, 4 * 257, tiles]
    assert plan_bytes(given) >= sum(-(-size // 16) * 16 for size in arrays)
