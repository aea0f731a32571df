"""FlashAttention-3 on Hopper (arXiv 2407.08608), over the paged cache. Owns the call and what it needs to be possible.

One routine serves every mix of query lengths. Lengths and block tables are read on the device, the number of splits is
bounded by the block table's width: nothing about the batch is frozen at capture but its padded shape.
"""

from importlib.util import find_spec
from typing import ClassVar

import torch

from legato.attention.compilation import CompileProgress
from legato.attention.first_calls import call_each_kernel
from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup, check_obstacles
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache

_PACKAGE = "flash_attn_interface"
_HEAD_DIMS = (64, 128, 256)
_DTYPES = ("bfloat16", "float16")
_MAX_BLOCK_SIZE = 64
"""Larger blocks are read whole: what no token has written, not-a-number included, then reaches the result."""


class FlashAttn3Backend:
    """Calls the operator that the package ``flash_attn_interface`` registers."""

    name: ClassVar[str] = "flash_attn_3"

    def __init__(self, setup: AttentionSetup) -> None:
        self._setup = setup
        import flash_attn_interface  # type: ignore[import-not-found]  # noqa: F401  registers the operator

        self._forward = torch.ops.flash_attn_3.fwd.default

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return ALWAYS on Hopper for the head sizes and types that the package has kernels for."""
        obstacles = {
            "package": "" if find_spec(_PACKAGE) else f"{_PACKAGE} is not installed: pip install 'legato[fa3]'",
            "device": "" if setup.device.capability[0] == 9 else f"{setup.device}; it has kernels for sm90 alone",
            "head size": ", ".join(
                f"{model.head_dim}, not in {_HEAD_DIMS}" for model in setup.models if model.head_dim not in _HEAD_DIMS
            ),
            "dtype": "" if setup.dtype in _DTYPES else f"{setup.dtype}, not in {_DTYPES}",
            "block size": "" if setup.block_size <= _MAX_BLOCK_SIZE else f"{setup.block_size}, over {_MAX_BLOCK_SIZE}",
            "layers": "" if isinstance(spec, FullAttentionSpec) else type(spec).__name__,
        }
        check_obstacles(cls.name, obstacles)
        return Support(level=GraphSupport.ALWAYS, reason="one routine for every mix; lengths are read on the device")

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: the split bound follows from the block table's width, which never changes."""
        return ()

    def compile_kernels(self, widths: tuple[int, ...], progress: CompileProgress) -> None:
        """Call each kernel once: one that the package lacks for this GPU is found before capture."""
        call_each_kernel(self, self._setup, widths, progress)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        out: torch.Tensor,
    ) -> None:
        """Attend; shapes as in the protocol."""
        width = metadata.query_len
        if width is not None:  # no ragged edges: the batch is a rectangle
            query = query.view(metadata.num_reqs, width, *query.shape[1:])
            out = out.view(query.shape)
        self._forward(
            query,
            cache.key,
            cache.value,
            out=out,
            cu_seqlens_q=None if width is not None else metadata.query_start_loc,
            max_seqlen_q=None if width is not None else metadata.max_query_len,
            seqused_k=metadata.seq_lens,
            page_table=metadata.block_table,
            softmax_scale=layer.scale,
            is_causal=True,
            window_size_left=-1 if layer.window is None else layer.window - 1,
            window_size_right=-1 if layer.window is None else 0,
        )
