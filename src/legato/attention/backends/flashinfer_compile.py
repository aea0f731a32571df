"""Making FlashInfer compile its kernels before they are needed: by calling each once, on one made-up request.

A call goes the way that steps go, so that exactly their kernels are compiled; FlashInfer keeps them on disk.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.kvcache.storage import LayerCache

Forward = Callable[[AttentionLayer, torch.Tensor, LayerCache, AttentionMetadata, torch.Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCall:
    """One kernel, by what it is for."""

    label: str
    run: Callable[[], None]


def first_calls(setup: AttentionSetup, forward: Forward, widths: tuple[int, ...]) -> Iterator[FirstCall]:
    """Yield a call per kernel: for uniform batches of each width and for other batches, with and without a window."""
    windows = {window is not None: window for window in setup.model.sliding_windows or (None,)}
    for window in windows.values():
        suffix = "" if window is None else ", windowed"
        for width in widths:
            yield FirstCall(label=f"query_len {width}{suffix}", run=_call(setup, forward, width, window, uniform=True))
        yield FirstCall(label=f"mixed batches{suffix}", run=_call(setup, forward, 1, window, uniform=False))


def _call(
    setup: AttentionSetup, forward: Forward, query_len: int, window: int | None, *, uniform: bool
) -> Callable[[], None]:
    """Return a call of one layer for one request that begins with this step."""
    model, device, dtype = setup.model, torch.device(setup.device.kind), getattr(torch, setup.dtype)
    num_blocks = -(-query_len // setup.block_size)

    def heads(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, model.head_dim, dtype=dtype, device=device)

    layer = AttentionLayer(
        index=0,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        scale=model.head_dim**-0.5,
        window=window,
    )

    def run() -> None:
        slots = torch.arange(query_len, device=device)
        metadata = AttentionMetadata(
            query_start_loc=torch.tensor([0, query_len], dtype=torch.int32, device=device),
            seq_lens=torch.tensor([query_len], dtype=torch.int32, device=device),
            block_table=torch.arange(num_blocks, dtype=torch.int32, device=device)[None],
            slot_mapping=slots,
            num_tokens=query_len,
            num_reqs=1,
            query_len=query_len if uniform else None,
            max_query_len=query_len,
            key_ints={},
        )
        cache_shape = (num_blocks, setup.block_size, model.num_kv_heads)
        cache = LayerCache(key=heads(*cache_shape), value=heads(*cache_shape))
        query, out = heads(query_len, model.num_heads), heads(query_len, model.num_heads)
        forward(layer, query, cache, metadata, out)

    return run
