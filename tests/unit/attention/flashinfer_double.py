"""FlashInfer's two entry points as its documentation describes them, in plain torch on the CPU.

It stands in for the library, not for our code: it reads every argument the way the kernels do (page lists, bit masks,
scales, windows), so that a wrong argument gives a wrong result.
"""

from types import ModuleType
from typing import Any

import torch

PLANS: list[dict[str, Any]] = []
"""What each call of ``plan`` was given, the latest last."""


def modules() -> dict[str, ModuleType]:
    """Return what to put into ``sys.modules``."""
    PLANS.clear()
    package, decode, prefill = (ModuleType(name) for name in ("flashinfer", "flashinfer.decode", "flashinfer.prefill"))
    decode.trtllm_batch_decode_with_kv_cache = trtllm_batch_decode_with_kv_cache  # type: ignore[attr-defined]
    prefill.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper  # type: ignore[attr-defined]
    return {module.__name__: module for module in (package, decode, prefill)}


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attend ``query`` [q, heads, d] to ``keys`` and ``values`` [n, kv_heads, d] where ``visible`` [q, n]."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (tensor.repeat_interleave(group, 1) for tensor in (keys, values))
    scores = torch.einsum("qhd,nhd->hqn", query, keys) * scale
    return torch.einsum("hqn,nhd->qhd", scores.masked_fill(~visible, float("-inf")).softmax(-1), values)


def causal(query_len: int, seq_len: int, window_left: int) -> torch.Tensor:
    position = torch.arange(seq_len)
    last = torch.arange(seq_len - query_len, seq_len)[:, None]
    return (position <= last) & ((window_left < 0) | (position >= last - window_left))


def trtllm_batch_decode_with_kv_cache(
    query: torch.Tensor,
    kv_cache: tuple[torch.Tensor, torch.Tensor],
    workspace_buffer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    *,
    bmm1_scale: float,
    window_left: int,
    out: torch.Tensor,
    kv_layout: str,
    q_len_per_req: int,
    mask: torch.Tensor | None,
) -> None:
    """XQA: the mask rules the last ``q_len_per_req`` tokens; a window is kept to with one query token alone."""
    assert kv_layout == "NHD"
    assert query.is_contiguous()
    assert out.is_contiguous()
    assert workspace_buffer.numel() > 8 << 20
    assert block_tables.dtype == seq_lens.dtype == torch.int32
    assert q_len_per_req == 1 or window_left < 0
    torch.ops.flashinfer_double.decode(
        query, *kv_cache, block_tables, seq_lens, max_seq_len, bmm1_scale, window_left, out, q_len_per_req, mask
    )


def _decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    scale: float,
    window_left: int,
    out: torch.Tensor,
    query_len: int,
    mask: torch.Tensor | None,
) -> None:
    for index, seq_len in enumerate(seq_lens.tolist()):
        assert seq_len <= max_seq_len
        rows = slice(index * query_len, (index + 1) * query_len)
        keys, values = (cache[block_tables[index].long()].flatten(0, 1)[:seq_len] for cache in (key_cache, value_cache))
        visible = causal(1, seq_len, window_left).repeat(query_len, 1)
        if query_len > 1:
            assert mask is not None
            assert mask.shape[1:] == (query_len, 2 * -(-query_len // 32))
            words = mask[index].tolist()
            for row in range(query_len):
                for column in range(query_len):
                    visible[row, seq_len - query_len + column] = bool(words[row][column // 16] >> (column % 16) & 1)
        out[rows] = attend(query[rows], keys, values, visible, scale)


_LIBRARY = torch.library.Library("flashinfer_double", "FRAGMENT")
_LIBRARY.define(
    "decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_tables, Tensor seq_lens, int max_seq_len, "
    "float scale, int window_left, Tensor(a!) out, int query_len, Tensor? mask) -> ()"
)
_LIBRARY.impl("decode", _decode, "CPU")  # one node of a graph, as a kernel is


class BatchPrefillWithPagedKVCacheWrapper:
    """Plans with host arrays; pages of a request are listed, and the last one holds ``last_page_len`` tokens."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, *, backend: str) -> None:
        assert kv_layout == "NHD"
        assert backend == "fa2", "what `auto` stands for on Hopper is not deterministic"

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        window_left: int,
        q_data_type: torch.dtype,
        max_token_per_sequence: int,
    ) -> None:
        host = (qo_indptr, paged_kv_indptr, paged_kv_last_page_len)
        assert all(array.device.type == "cpu" and array.dtype == torch.int32 for array in host)
        assert paged_kv_indices.dtype == torch.int32
        assert causal
        self.starts, self.page_starts, self.last = (array.tolist() for array in host)
        self.pages, self.page_size, self.window_left = paged_kv_indices.long(), page_size, window_left
        assert max_token_per_sequence >= int(qo_indptr.diff().max())
        PLANS.append({"starts": self.starts, "window_left": window_left, "dtype": q_data_type})

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        q_scale: float,
        out: torch.Tensor,
    ) -> None:
        assert q.shape[0] == out.shape[0] == self.starts[-1]
        for index, (begin, end) in enumerate(zip(self.starts[:-1], self.starts[1:], strict=True)):
            pages = self.pages[self.page_starts[index] : self.page_starts[index + 1]]
            seq_len = (len(pages) - 1) * self.page_size + self.last[index]
            keys, values = (cache[pages].flatten(0, 1)[:seq_len] for cache in paged_kv_cache)
            visible = causal(end - begin, seq_len, self.window_left)
            out[begin:end] = attend(q[begin:end], keys, values, visible, q_scale * q.shape[-1] ** -0.5)
