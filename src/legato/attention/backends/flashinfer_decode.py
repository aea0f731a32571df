"""FlashInfer's uniform decode: XQA on Hopper, TRTLLM-gen on Blackwell. Owns their workspace and masks, and the call.

Both read lengths and block tables on the device and need no host plan: any step over them can be captured.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from legato.attention.backends.flashinfer_support import MAX_QUERY_LEN, UniformKernel
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.kvcache.storage import LayerCache

_SEMAPHORE_BYTES = 8 << 20
"""What the entry point sets aside at the front of the workspace."""
_TRTLLM_GEN_BYTES = 128 << 20
"""What FlashInfer's documentation advises."""
_ROWS = 32
"""Rows of XQA's tile: query tokens × grouped heads."""


class UniformDecode:
    """Attends batches in which every request has the same number of query tokens."""

    def __init__(self, setup: AttentionSetup, kernel: UniformKernel) -> None:
        from flashinfer.decode import trtllm_batch_decode_with_kv_cache  # type: ignore[import-not-found]

        self.kernel = kernel
        self._call: Callable[..., Any] = trtllm_batch_decode_with_kv_cache
        self._max_model_len = setup.max_model_len
        device = torch.device(setup.device.kind)
        # Kernels count their parts in it and leave the counters at zero again.
        self._workspace = torch.zeros(workspace_bytes(setup, kernel), dtype=torch.uint8, device=device)
        self._masks: dict[int, torch.Tensor] = {}
        if kernel is UniformKernel.XQA:
            for query_len in range(2, MAX_QUERY_LEN + 1):
                self._masks[query_len] = causal_mask(query_len, setup.max_num_seqs).to(device)

    def attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        query_len: int,
        out: torch.Tensor,
    ) -> None:
        """Write ``out`` [num_reqs * query_len, num_heads, head_dim], contiguous; ``query`` has its shape."""
        mask = self._masks.get(query_len)
        self._call(
            query.contiguous(),  # the kernels take an address and no strides
            (cache.key, cache.value),
            self._workspace,
            metadata.block_table,
            metadata.seq_lens,
            self._max_model_len,
            bmm1_scale=layer.scale,
            window_left=-1 if layer.window is None else layer.window - 1,
            out=out,
            kv_layout="NHD",
            q_len_per_req=query_len,
            mask=None if mask is None else mask[: metadata.num_reqs],
        )


def workspace_bytes(setup: AttentionSetup, kernel: UniformKernel) -> int:
    """Return the bytes that the largest batch may use.

    XQA splits a sequence so far that all parts together are at most one per multiprocessor, times the tiles of rows
    that one key head's query tokens fill; a part leaves a tile of results, and a maximum and a sum per row.
    """
    if kernel is UniformKernel.TRTLLM_GEN:
        return _TRTLLM_GEN_BYTES
    padded_head = next(size for size in (64, 128, 256) if setup.largest_head_dim <= size)
    row_bytes = 2 * padded_head + 2 * 4
    tiles = -(-MAX_QUERY_LEN * setup.largest_group // _ROWS)
    return _SEMAPHORE_BYTES + setup.device.num_multiprocessors * tiles * _ROWS * row_bytes


def causal_mask(query_len: int, num_reqs: int) -> torch.Tensor:
    """Return XQA's mask [num_reqs, query_len, 2] uint16 on the CPU: bit c % 16 of word c // 16 of row r, for c ≤ r."""
    rows = (np.uint64(1) << np.arange(1, query_len + 1, dtype=np.uint64)) - np.uint64(1)
    words = rows.astype("<u4").view("<u2").reshape(1, query_len, 2)
    return torch.from_numpy(np.repeat(words, num_reqs, axis=0))
