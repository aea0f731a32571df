"""Calling each kernel of a backend once before anything is captured, on one made-up request.

A call goes the way that steps go, so that exactly their kernels are loaded, or compiled where the library compiles: one
that this GPU has no code for is found here, and named.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from legato.attention.compilation import CompileProgress
from legato.attention.planning import PlanningBackend, PreparedBatch
from legato.attention.protocol import AttentionBackend, AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.errors import BackendError
from legato.kvcache.storage import LayerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstCall:
    """One kernel, by what it is for."""

    label: str
    run: Callable[[], None]


def call_each_kernel(
    backend: AttentionBackend,
    setup: AttentionSetup,
    widths: tuple[int, ...],
    progress: CompileProgress,
    *,
    waits_for: str = "",
) -> None:
    """Call ``backend`` for uniform batches of each width and for other batches, with and without the model's window.

    ``waits_for``: what makes a first call take long, told with each.
    Raises BackendError, naming the batch, where a kernel cannot be compiled, loaded or launched.
    """
    calls = list(_first_calls(backend, setup, widths))
    for done, call in enumerate(calls):
        progress(done, len(calls), f"{call.label} ({waits_for})" if waits_for else call.label)
        try:
            call.run()
        except (RuntimeError, OSError) as error:
            raise BackendError(
                f"backend {backend.name} has no kernel for {call.label} on {setup.device}",
                {"found": error, "options": "another --attention-backend"},
            ) from error


def _first_calls(backend: AttentionBackend, setup: AttentionSetup, widths: tuple[int, ...]) -> Iterator[_FirstCall]:
    windows = {window is not None: window for window in setup.model.sliding_windows or (None,)}
    for window in windows.values():
        suffix = "" if window is None else ", windowed"
        for width in widths:
            yield _FirstCall(label=f"query_len {width}{suffix}", run=_call(backend, setup, width, window, uniform=True))
        yield _FirstCall(label=f"mixed batches{suffix}", run=_call(backend, setup, 1, window, uniform=False))


def _call(
    backend: AttentionBackend, setup: AttentionSetup, query_len: int, window: int | None, *, uniform: bool
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
        metadata = AttentionMetadata(
            query_start_loc=torch.tensor([0, query_len], dtype=torch.int32, device=device),
            seq_lens=torch.tensor([query_len], dtype=torch.int32, device=device),
            block_table=torch.arange(num_blocks, dtype=torch.int32, device=device)[None],
            slot_mapping=torch.arange(query_len, device=device),
            num_tokens=query_len,
            num_reqs=1,
            query_len=query_len if uniform else None,
            max_query_len=query_len,
            key_ints={},
        )
        cache_shape = (num_blocks, setup.block_size, model.num_kv_heads)
        cache = LayerCache(key=heads(*cache_shape), value=heads(*cache_shape))
        query, out = heads(query_len, model.num_heads), heads(query_len, model.num_heads)
        if isinstance(backend, PlanningBackend) and backend.plans(metadata.query_len):
            lengths = (query_len,)
            backend.prepare(
                PreparedBatch(num_reqs=1, query_len=metadata.query_len, query_lens=lengths, seq_lens=lengths)
            )
        backend.forward(layer, query, cache, metadata, out)

    return run
