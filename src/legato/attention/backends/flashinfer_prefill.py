"""FlashInfer's paged prefill for any mix of query lengths. Owns its plans; runs eagerly only, never inside a capture.

FlashInfer plans on the host, from lengths. A step that was prepared is planned from what the host knows, and waits for
nothing. One that was not, as behind accepted drafts whose number only the device knows, reads them from its own
metadata, once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from legato.attention.planning import PreparedBatch
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig
from legato.device.host_memory import on_host, upload
from legato.kvcache.storage import LayerCache

_KERNELS = "fa2"
"""On Hopper the library would choose its ``fa3`` kernels, with which the same batch does not always give the same bits:
shared memory is read while it may still be written (flashinfer issue 1046, open)."""
_ADVISED_BYTES = 128 << 20
"""What FlashInfer's documentation advises for a workspace."""
_ROWS = 128
"""Rows of the largest tile: query tokens × grouped heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """The pages of a batch's requests, one request after another; requests without tokens are left out."""

    query_start: np.ndarray  # [num_reqs + 1] int32
    page_start: np.ndarray  # [num_reqs + 1] int32
    cells: np.ndarray  # [num_pages] int64: place of each page in the flattened block table
    last_page_len: np.ndarray  # [num_reqs] int32

    @property
    def num_tokens(self) -> int:
        """Real tokens of the batch, which come before the padded ones."""
        return int(self.query_start[-1])


class PlannedPrefill:
    """Two wrappers per attention window, which take turns, one of them planned at most once a step.

    Each has page-locked memory of its own, from which the plan of the step before may still have to be copied.
    """

    def __init__(self, setup: AttentionSetup, workspace: torch.Tensor) -> None:
        """``workspace`` uint8, for partial results, of :func:`workspace_bytes` at least."""
        self._setup = setup
        self._dtype = getattr(torch, setup.dtype)
        self._workspace = workspace
        self._wrappers: dict[int | None, tuple[Any, ...]] = {}
        self._turn = 0
        self._prepared: PreparedBatch | None = None
        """The batch of the next step, until that has begun."""
        self._planned: set[int | None] = set()
        """Windows that are planned for the current step."""
        self._metadata: AttentionMetadata | None = None
        self._last_layer = -1
        self._pages: PageTable | None = None

    def prepare(self, batch: PreparedBatch) -> None:
        """Take the next step's lengths from ``batch``."""
        self._prepared = batch

    def attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Write ``out`` [num_tokens, num_heads, head_dim] for all real tokens; ``query`` has its shape."""
        pages = self._pages_of(layer, metadata)
        wrapper = self._wrapper(layer.window)
        if layer.window not in self._planned:
            self._plan(wrapper, layer, metadata, pages)
            self._planned.add(layer.window)
        wrapper.run(
            query[: pages.num_tokens],
            (cache.key, cache.value),
            q_scale=layer.scale * layer.head_dim**0.5,  # of what the plan assumes, 1 / sqrt(head size)
            out=out[: pages.num_tokens],
        )

    def _pages_of(self, layer: AttentionLayer, metadata: AttentionMetadata) -> PageTable:
        """Return the step's pages, found at its first layer: from the prepared batch, else read from the device.

        Layers come in order, and segments of a graph pass the same metadata object at each replay: a step has begun
        where the object is another one or the layer does not follow the last.
        """
        if self._pages is None or metadata is not self._metadata or layer.index <= self._last_layer:
            prepared, self._prepared = self._prepared, None
            starts, seq_lens = _lengths_on_device(metadata) if prepared is None else _lengths_on_host(prepared)
            self._pages = page_table(
                starts, seq_lens, max_blocks=metadata.block_table.shape[1], block_size=self._setup.block_size
            )
            self._metadata = metadata
            self._planned.clear()
            self._turn = 1 - self._turn
        self._last_layer = layer.index
        return self._pages

    def _wrapper(self, window: int | None) -> Any:
        if window not in self._wrappers:
            from flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper  # type: ignore[import-not-found]

            self._wrappers[window] = tuple(
                BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD", backend=_KERNELS) for _ in range(2)
            )
        return self._wrappers[window][self._turn]

    def _plan(self, wrapper: Any, layer: AttentionLayer, metadata: AttentionMetadata, pages: PageTable) -> None:
        device = metadata.block_table.device
        wrapper.plan(
            on_host(pages.query_start, device),
            on_host(pages.page_start, device),
            metadata.block_table.flatten().index_select(0, upload(pages.cells, device)),
            on_host(pages.last_page_len, device),
            layer.num_heads,
            layer.num_kv_heads,
            layer.head_dim,
            self._setup.block_size,
            causal=True,
            window_left=-1 if layer.window is None else layer.window - 1,
            q_data_type=self._dtype,
            max_token_per_sequence=int(np.diff(pages.query_start).max()),
        )


def _lengths_on_device(metadata: AttentionMetadata) -> tuple[np.ndarray, np.ndarray]:
    """Return ``query_start_loc`` and ``seq_lens``, for which the host waits; an error inside a capture."""
    lengths = torch.cat([metadata.query_start_loc, metadata.seq_lens]).cpu().numpy()
    starts, seq_lens = np.split(lengths, [metadata.num_reqs + 1])
    return starts, seq_lens


def _lengths_on_host(batch: PreparedBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return ``query_start_loc`` and ``seq_lens`` of the real requests, which come before the padded ones."""
    return np.cumsum((0, *batch.query_lens), dtype=np.int32), np.array(batch.seq_lens, dtype=np.int32)


def workspace_bytes(setup: AttentionSetup) -> int:
    """Return the bytes that the partial results of any plan may take.

    Keys are split so far that there are two tiles per multiprocessor and key head at most, and FlashInfer counts a tile
    of float32 results, and a float per row, for each query head.
    """

    def needed(model: ModelConfig) -> int:
        tiles = -(-2 * setup.device.num_multiprocessors // model.num_kv_heads)
        return model.num_heads * tiles * _ROWS * (model.head_dim + 1) * 4

    return max(_ADVISED_BYTES, *map(needed, setup.models))


def page_table(query_start_loc: np.ndarray, seq_lens: np.ndarray, *, max_blocks: int, block_size: int) -> PageTable:
    """Return the pages of the requests that have tokens.

    ``query_start_loc`` [num_reqs + 1], ``seq_lens`` [num_reqs]; the block table is [num_reqs, max_blocks].
    """
    row = np.flatnonzero(np.diff(query_start_loc) > 0)  # in the block table
    num_pages = -(-seq_lens[row] // block_size)
    page_start = np.concatenate([[0], np.cumsum(num_pages)])
    page = np.arange(page_start[-1]) - np.repeat(page_start[:-1], num_pages)
    return PageTable(
        query_start=np.concatenate([query_start_loc[row], query_start_loc[-1:]]).astype(np.int32),
        page_start=page_start.astype(np.int32),
        cells=(np.repeat(row * max_blocks, num_pages) + page).astype(np.int64),
        last_page_len=(seq_lens[row] - (num_pages - 1) * block_size).astype(np.int32),
    )
