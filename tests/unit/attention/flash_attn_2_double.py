"""The entry points that bring FlashAttention-2, as their sources describe them, in plain torch on the CPU.

They stand in for the libraries, not for our code: arguments come in the order and number of the real signatures, and
what the kernels would silently compute wrongly is asserted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from legato.kernels.paged_attention import paged_attention_reference

CALLS: list[str] = []
"""The entry points that were called, the latest last."""

_VARLEN_SCHEMA = (
    "varlen_fwd(Tensor(a!) q, Tensor k, Tensor v, Tensor(b!)? out, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "Tensor? seqused_k, Tensor? leftpad_k, Tensor? block_table, Tensor? alibi_slopes, int max_seqlen_q, "
    "int max_seqlen_k, float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, int window_size_left, "
    "int window_size_right, float softcap, bool return_softmax, int num_splits, Generator? gen) -> Tensor[]"
)
_KVCACHE_SCHEMA = (
    "fwd_kvcache(Tensor(a!) q, Tensor kcache, Tensor vcache, Tensor? k, Tensor? v, Tensor? seqlens_k, "
    "Tensor? rotary_cos, Tensor? rotary_sin, Tensor? cache_batch_idx, Tensor? leftpad_k, Tensor? block_table, "
    "Tensor? alibi_slopes, Tensor(b!)? out, float softmax_scale, bool is_causal, int window_size_left, "
    "int window_size_right, float softcap, bool is_rotary_interleaved, int num_splits) -> Tensor[]"
)


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    seqused_k: torch.Tensor,
    leftpad_k: None,
    block_table: torch.Tensor,
    alibi_slopes: None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    num_splits: int,
    gen: None,
) -> list[torch.Tensor]:
    CALLS.append("varlen_fwd")
    assert num_splits <= 1, "not supported for varlen with pages"
    assert cu_seqlens_k.shape == cu_seqlens_q.shape, "checked though it is not read"
    assert max_seqlen_q > 1, "one token at most is taken to be exactly one token per request"
    assert max_seqlen_q >= int(cu_seqlens_q.diff().max())
    assert max_seqlen_k >= int(seqused_k.max())
    assert (p_dropout, softcap, return_softmax, is_causal) == (0.0, 0.0, False, True)
    window = _window(window_size_left, window_size_right)
    num_tokens = int(cu_seqlens_q[-1])
    out[:num_tokens] = _attended(q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale, window)[:num_tokens]
    return [out.clone(), torch.empty(0)]


def _kvcache(
    q: torch.Tensor,
    kcache: torch.Tensor,
    vcache: torch.Tensor,
    k: None,
    v: None,
    seqlens_k: torch.Tensor,
    rotary_cos: None,
    rotary_sin: None,
    cache_batch_idx: None,
    leftpad_k: None,
    block_table: torch.Tensor,
    alibi_slopes: None,
    out: torch.Tensor,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
) -> list[torch.Tensor]:
    CALLS.append("fwd_kvcache")
    batch_size, width = q.shape[:2]
    assert seqlens_k.shape == (batch_size,)
    assert out.shape == q.shape
    assert (softcap, is_causal) == (0.0, True)
    assert out.is_contiguous(), "packing heads writes through a view"
    starts = torch.arange(batch_size + 1) * width
    window = _window(window_size_left, window_size_right)
    attended = _attended(q.flatten(0, 1), kcache, vcache, starts, seqlens_k, block_table, softmax_scale, window)
    out.copy_(attended.view(out.shape))
    return [out.clone(), torch.empty(0)]


def _torch_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: torch.Tensor,
    cum_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float,
    window_size_left: int,
    window_size_right: int,
    seqused_k: torch.Tensor,
    alibi_slopes: None = None,
    block_table: torch.Tensor,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, ...]:
    CALLS.append("_flash_attention_forward")
    packs = max_q == 1 and query.shape[1] > key.shape[2] and window_size_left < 0 and window_size_right < 0
    assert packs or num_splits == 1, "parts of a ragged batch are put together at the wrong places"
    assert max_q >= int(cum_seq_q.diff().max())
    assert max_q > 1 or len(query) == len(seqused_k)
    assert max_k >= int(seqused_k.max())
    assert (dropout_p, is_causal, return_debug_mask) == (0.0, True, False)
    window = _window(window_size_left, window_size_right)
    attended = _attended(query, key, value, cum_seq_q, seqused_k, block_table, scale, window)
    unused = torch.empty(0)
    return attended, unused, unused, unused, unused


def _attended(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    starts: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    assert query.stride(-1) == 1
    return paged_attention_reference(
        query,
        key_cache,
        value_cache,
        query_start_loc=starts,
        seq_lens=seq_lens,
        block_table=block_table,
        scale=scale,
        window=window,
    ).to(query.dtype)


def _window(left: int, right: int) -> int | None:
    assert right == (-1 if left < 0 else 0)
    return None if left < 0 else left + 1


def package() -> ModuleType:
    """Return what flash-attn installs as ``flash_attn_2_cuda``; its ``varlen_fwd`` has no ``num_splits``."""
    module = ModuleType("flash_attn_2_cuda")
    module.varlen_fwd = lambda *arguments: _varlen(*arguments[:20], 0, *arguments[20:])  # type: ignore[attr-defined]
    module.fwd_kvcache = _kvcache  # type: ignore[attr-defined]
    return module


@contextmanager
def operators() -> Iterator[None]:
    """Register vLLM's operators, by the schemas in its library, and PyTorch's own, for the CPU."""
    CALLS.clear()
    vllm, aten = torch.library.Library("_vllm_fa2_C", "FRAGMENT"), torch.library.Library("aten", "IMPL")
    vllm.define(_VARLEN_SCHEMA)
    vllm.define(_KVCACHE_SCHEMA)
    vllm.impl("varlen_fwd", _varlen, "CPU")
    vllm.impl("fwd_kvcache", _kvcache, "CPU")
    aten.impl("_flash_attention_forward", _torch_forward, "CPU")
    try:
        yield
    finally:
        vllm._destroy()
        aten._destroy()
