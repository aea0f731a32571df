"""FlashInfer's entry points as its documentation describes them, in plain torch on the CPU.

It stands in for the library, not for our code: it reads every argument the way the kernels do (page lists, bit masks,
scales, windows), so that a wrong argument gives a wrong result. A plan is refused where the library refuses it, and
where the host memory that it is written to may still be copied from.
"""

from collections import deque
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

PLANS: list[dict[str, Any]] = []
"""What each call of ``plan`` was given, the latest last."""
UNDER_WAY: deque[list[tuple[torch.Tensor, torch.Tensor]]] = deque(maxlen=1)
"""Host memory that the latest plan is copied from, with what it held, on a device that is one step behind."""


def refuse_overwriting(page_locked: torch.Tensor) -> None:
    """Refuse a plan inside a capture, and one after whose caller, or which itself, overwrites what is under way."""
    if _get_current_dispatch_mode() is not None:
        raise RuntimeError("operation not permitted when stream is capturing")
    for host, held in (pair for copies in UNDER_WAY for pair in copies):
        overwritten = host.data_ptr() == page_locked.data_ptr() or not torch.equal(host, held)
        assert not overwritten, "a plan is overwritten before it is copied"


def copy_to_device(*host: torch.Tensor) -> None:
    """Note the copies of one plan."""
    UNDER_WAY.append([(tensor, tensor.clone()) for tensor in host])


def modules() -> dict[str, ModuleType]:
    """Return what to put into ``sys.modules``."""
    PLANS.clear()
    UNDER_WAY.clear()
    package, decode, prefill = (ModuleType(name) for name in ("flashinfer", "flashinfer.decode", "flashinfer.prefill"))
    decode.trtllm_batch_decode_with_kv_cache = trtllm_batch_decode_with_kv_cache  # type: ignore[attr-defined]
    decode.fast_decode_plan = fast_decode_plan  # type: ignore[attr-defined]
    decode.BatchDecodeWithPagedKVCacheWrapper = BatchDecodeWithPagedKVCacheWrapper  # type: ignore[attr-defined]
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
        self.page_locked = torch.zeros(16, dtype=torch.int32)

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
        refuse_overwriting(self.page_locked)
        copy_to_device(self.page_locked, *host)
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


class BatchDecodeWithPagedKVCacheWrapper:
    """One token per request, in graphs: kernels read the caller's lists and the plan in device memory."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool,
        use_tensor_cores: bool,
        paged_kv_indptr_buffer: torch.Tensor,
        paged_kv_indices_buffer: torch.Tensor,
        paged_kv_last_page_len_buffer: torch.Tensor,
        backend: str,
    ) -> None:
        assert kv_layout == "NHD"
        assert use_cuda_graph
        assert use_tensor_cores, "without them there are kernels for some numbers of heads alone"
        assert backend == "fa2"
        assert len(paged_kv_indptr_buffer) == len(paged_kv_last_page_len_buffer) + 1
        self.page_starts, self.pages = paged_kv_indptr_buffer, paged_kv_indices_buffer
        self.last_page_len = paged_kv_last_page_len_buffer
        self.plan_memory, self.page_locked = torch.zeros(0, dtype=torch.uint8), torch.zeros(0, dtype=torch.uint8)

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        self.plan_memory = int_workspace_buffer
        self.page_locked = torch.zeros_like(int_workspace_buffer)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        q_data_type: torch.dtype,
    ) -> None:
        if len(last_page_len) != len(self.last_page_len):
            raise ValueError("The batch size should be fixed in cudagraph mode")
        if len(indices) > len(self.pages):
            raise ValueError("The size of indices should be less than or equal to the allocated buffer")
        assert all(array.device.type == "cpu" and array.dtype == torch.int32 for array in (indptr, last_page_len))
        self.page_starts.copy_(indptr)
        self.last_page_len.copy_(last_page_len)
        self.pages[: len(indices)].copy_(indices)
        self.page_size, self.window_left = page_size, window_left
        self.write_plan(indptr, last_page_len)
        PLANS.append({"pages": indptr.tolist(), "window_left": window_left, "dtype": q_data_type})

    def write_plan(self, indptr: torch.Tensor, last_page_len: torch.Tensor) -> None:
        refuse_overwriting(self.page_locked)
        plan = torch.tensor([len(last_page_len), *indptr.diff().tolist()], dtype=torch.int32).view(torch.uint8)
        self.page_locked[: len(plan)] = plan
        self.plan_memory.copy_(self.page_locked)
        copy_to_device(self.page_locked, indptr, last_page_len)

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        q_scale: float,
        out: torch.Tensor,
    ) -> None:
        assert q.shape == out.shape
        assert len(q) == len(self.last_page_len)
        scale = q_scale * q.shape[-1] ** -0.5
        lists = (self.page_starts, self.pages, self.last_page_len, self.plan_memory)
        torch.ops.flashinfer_double.planned_decode(q, *paged_kv_cache, *lists, scale, self.window_left, out)


def fast_decode_plan(
    wrapper: BatchDecodeWithPagedKVCacheWrapper,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last_page_len: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    *,
    window_left: int,
    q_data_type: torch.dtype,
    global_override_indptr_cpu: torch.Tensor,
) -> None:
    """Renew the plan of a wrapper that was planned before; its lists are left to the caller."""
    if len(last_page_len) != len(wrapper.last_page_len):
        raise ValueError("The batch size should be fixed in cudagraph mode")
    assert (page_size, window_left) == (wrapper.page_size, wrapper.window_left)
    assert all(array.device.type == "cpu" for array in (global_override_indptr_cpu, last_page_len))
    wrapper.write_plan(global_override_indptr_cpu, last_page_len)
    PLANS.append({"pages": indptr.tolist(), "window_left": window_left, "dtype": q_data_type})


def _planned_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    page_starts: torch.Tensor,
    pages: torch.Tensor,
    last_page_len: torch.Tensor,
    plan: torch.Tensor,
    scale: float,
    window_left: int,
    out: torch.Tensor,
) -> None:
    num_reqs, page_size = len(query), key_cache.shape[1]
    planned = plan[: 4 * (num_reqs + 1)].view(torch.int32).tolist()
    assert planned == [num_reqs, *page_starts.diff().tolist()], "the plan is that of another batch"
    for index, (begin, end) in enumerate(pairwise(page_starts.tolist())):
        seq_len = (end - begin - 1) * page_size + int(last_page_len[index])
        keys, values = (cache[pages[begin:end].long()].flatten(0, 1)[:seq_len] for cache in (key_cache, value_cache))
        out[index : index + 1] = attend(query[index, None], keys, values, causal(1, seq_len, window_left), scale)


_LIBRARY.define(
    "planned_decode(Tensor query, Tensor key_cache, Tensor value_cache, Tensor page_starts, Tensor pages, "
    "Tensor last_page_len, Tensor plan, float scale, int window_left, Tensor(a!) out) -> ()"
)
_LIBRARY.impl("planned_decode", _planned_decode, "CPU")
