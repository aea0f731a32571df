"""FlashInfer's decode of one token per request, planned on the host. Owns its wrappers, and all that graphs read.

For GPUs and models that no kernel without a plan serves. A plan is renewed before each step, outside of graphs, from
lengths on the host, and copied to where the graph of that batch size reads it. Only the lists of pages are made on the
device, as the first node of a step.

Wrappers for all batch sizes share device memory: plan, lists and kernels are in the order of one stream, and no two
graphs run at once. Host memory is copied from while the next step is prepared, so that each size has two wrappers,
which take turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from legato.attention.planning import PreparedBatch
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.device.host_memory import host_buffer
from legato.kvcache.storage import LayerCache

_KERNELS = "fa2"
"""With tensor cores these are the kernels of planned prefill, compiled once for both, for any number of heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostArrays:
    """What a plan is made from, page-locked, and the same memory as arrays."""

    page_start: torch.Tensor  # [max_num_seqs + 1] int32
    last_page_len: torch.Tensor  # [max_num_seqs] int32
    page_start_np: np.ndarray
    last_page_len_np: np.ndarray

    @classmethod
    def create(cls, max_num_seqs: int, device: torch.device) -> "_HostArrays":
        page_start, last_page_len = (host_buffer(max_num_seqs + more, torch.int32, device).zero_() for more in (1, 0))
        return cls(
            page_start=page_start,
            last_page_len=last_page_len,
            page_start_np=page_start.numpy(),
            last_page_len_np=last_page_len.numpy(),
        )


class PlannedDecode:
    """Two wrappers per batch size and attention window."""

    def __init__(self, setup: AttentionSetup, workspace: torch.Tensor) -> None:
        """``workspace`` uint8, for partial results, of :func:`planned_decode_bytes` at least."""
        from flashinfer.decode import fast_decode_plan  # type: ignore[import-not-found]

        self._plan_again: Callable[..., None] = fast_decode_plan
        self._setup = setup
        self._workspace = workspace
        self._dtype = getattr(torch, setup.dtype)
        self._windows = tuple(dict.fromkeys(setup.model.sliding_windows or (None,)))
        device, max_num_seqs = workspace.device, setup.max_num_seqs

        def int32(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        self._page_start, self._last_page_len = int32(max_num_seqs + 1), int32(max_num_seqs)
        self._pages = int32(max_num_seqs * -(-setup.max_model_len // setup.block_size) + 1)
        """The last one is written by table cells that hold no page."""
        self._no_pages = int32(0)
        self._plans = {
            window: torch.zeros(plan_bytes(setup), dtype=torch.uint8, device=device) for window in self._windows
        }
        self._host = tuple(_HostArrays.create(max_num_seqs, device) for _ in range(2))
        self._turn = 0
        self._wrappers: dict[tuple[int, int | None, int], Any] = {}
        """By batch size, window and turn."""
        self._num_reqs: int | None = None
        """Padded size of the batch that is prepared and has not ended."""
        self._last_layer = -1

    def prepare(self, batch: PreparedBatch) -> None:
        """Plan every window for a batch of single tokens; a padded request has one token, in the null block."""
        self._turn = 1 - self._turn
        self._num_reqs, self._last_layer = batch.num_reqs, -1
        block_size = self._setup.block_size
        seq_lens = np.ones(batch.num_reqs, dtype=np.int32)
        seq_lens[: len(batch.seq_lens)] = batch.seq_lens
        num_pages = -(-seq_lens // block_size)
        host = self._host[self._turn]
        host.page_start_np[1 : batch.num_reqs + 1] = np.cumsum(num_pages)
        host.last_page_len_np[: batch.num_reqs] = seq_lens - (num_pages - 1) * block_size
        page_start, last_page_len = host.page_start[: batch.num_reqs + 1], host.last_page_len[: batch.num_reqs]
        self._page_start[: batch.num_reqs + 1].copy_(page_start, non_blocking=True)
        self._last_page_len[: batch.num_reqs].copy_(last_page_len, non_blocking=True)
        for window in self._windows:
            self._plan(window, page_start, last_page_len)

    def _plan(self, window: int | None, page_start: torch.Tensor, last_page_len: torch.Tensor) -> None:
        """Plan one window for the batch of which ``page_start`` and ``last_page_len`` are on the host."""
        model, num_reqs = self._setup.model, len(last_page_len)
        # The pages are listed on the device, and the two lists of the host are there already.
        lists = (page_start, self._no_pages, last_page_len)
        heads = (model.num_heads, model.num_kv_heads, model.head_dim, self._setup.block_size)
        window_left = -1 if window is None else window - 1
        key = num_reqs, window, self._turn
        if key in self._wrappers:
            # Without the first plan's checks, and its maximum over the lengths, which takes a millisecond for 256.
            self._plan_again(
                self._wrappers[key],
                *lists,
                *heads,
                window_left=window_left,
                q_data_type=self._dtype,
                global_override_indptr_cpu=page_start,
            )
        else:
            self._wrappers[key] = self._new_wrapper(num_reqs, window)
            self._wrappers[key].plan(*lists, *heads, window_left=window_left, q_data_type=self._dtype)

    def is_prepared(self, layer: AttentionLayer, metadata: AttentionMetadata) -> bool:
        """Return whether a plan was made for the step that ``layer`` belongs to; layers come in order."""
        if layer.index <= self._last_layer:
            self._num_reqs = None  # the step that was prepared has ended
        return self._num_reqs == metadata.num_reqs

    def attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Write ``out`` [num_reqs, num_heads, head_dim]; ``query`` has its shape. Can be captured."""
        if self._last_layer < 0:
            self._list_pages(metadata.block_table)
        self._last_layer = layer.index
        self._wrappers[metadata.num_reqs, layer.window, self._turn].run(
            query,
            (cache.key, cache.value),
            q_scale=layer.scale * layer.head_dim**0.5,  # of what the plan assumes, 1 / sqrt(head size)
            out=out,
        )

    def _list_pages(self, block_table: torch.Tensor) -> None:
        """Write each request's pages behind those of the one before; ``block_table`` [num_reqs, max_blocks]."""
        num_reqs, max_blocks = block_table.shape
        begin, end = self._page_start[:num_reqs, None], self._page_start[1 : num_reqs + 1, None]
        places = begin + torch.arange(max_blocks, dtype=torch.int32, device=block_table.device)
        places = torch.where(places < end, places, len(self._pages) - 1)
        self._pages.scatter_(0, places.flatten().to(torch.int64), block_table.flatten())

    def _new_wrapper(self, num_reqs: int, window: int | None) -> Any:
        from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper

        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            self._workspace,
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=self._page_start[: num_reqs + 1],
            paged_kv_indices_buffer=self._pages,
            paged_kv_last_page_len_buffer=self._last_page_len[:num_reqs],
            backend=_KERNELS,
        )
        # Its own plan memory is 8 MiB, on the device and in page-locked memory of the host each.
        wrapper.reset_workspace_buffer(self._workspace, self._plans[window])
        return wrapper


def planned_decode_bytes(setup: AttentionSetup) -> int:
    """Return the bytes that partial results may take: a tile of float32 and a float per row, for each query head."""
    model = setup.model
    return model.num_heads * _num_tiles(setup) * _tile_rows(setup) * (model.head_dim + 1) * 4


def plan_bytes(setup: AttentionSetup) -> int:
    """Return the bytes of a plan: 13 for each tile, 8 for each request, two integers, aligned to 16 each."""
    return 13 * _num_tiles(setup) + 8 * (setup.max_num_seqs + 1) + 16 * 16


def _num_tiles(setup: AttentionSetup) -> int:
    """Return the tiles of the largest batch: two for each multiprocessor and key head, or those it has unsplit."""
    split = 2 * setup.device.num_multiprocessors // setup.model.num_kv_heads
    return max(split, -(-setup.max_num_seqs * setup.largest_group // _tile_rows(setup)) + setup.max_num_seqs - 1)


def _tile_rows(setup: AttentionSetup) -> int:
    """Return the rows of a tile, which hold the query heads of one key head."""
    if setup.largest_group <= 16:
        return 16
    return 128 if setup.largest_group > 64 and setup.largest_head_dim < 256 else 64
