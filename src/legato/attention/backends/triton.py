"""Paged attention on the GPU with Legato's own Triton kernels. Owns the choice between them and the split workspace.

Both kernels read lengths and block tables from device memory, and every host integer that they are launched with
follows from the padded batch: any step can be captured.
"""

from importlib.util import find_spec
from typing import ClassVar

import torch

from legato.attention.graph_support import GraphSupport, Support
from legato.attention.protocol import AttentionLayer, AttentionMetadata
from legato.attention.setup import AttentionSetup, check_obstacles
from legato.kernels.paged_attention_configs import (
    MAX_HEAD_DIM,
    MAX_QUERY_LEN,
    MAX_ROWS,
    decode_choice,
    workspace_rows,
)
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kvcache.spec import FullAttentionSpec, KVSpec
from legato.kvcache.storage import LayerCache


class TritonBackend:
    """Split-KV decode for uniform batches, one varlen kernel for everything else."""

    name: ClassVar[str] = "triton"

    def __init__(self, setup: AttentionSetup) -> None:
        self._multiprocessors = setup.device.num_multiprocessors
        self._workspace = SplitWorkspace(
            workspace_rows(multiprocessors=self._multiprocessors, group=setup.largest_group),
            setup.largest_head_dim,
            torch.device(setup.device.kind),
        )

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        """Return ALWAYS on CUDA; raise BackendError elsewhere, without Triton, or for heads that the kernels refuse."""
        obstacles = {
            "device": "" if setup.device.kind == "cuda" else f"{setup.device}; the kernels are for cuda alone",
            "package": "" if find_spec("triton") else "triton is not installed: pip install triton",
            "layers": "" if isinstance(spec, FullAttentionSpec) else type(spec).__name__,
        }
        if isinstance(spec, FullAttentionSpec):
            group = setup.largest_group
            obstacles["head size"] = "" if spec.head_dim <= MAX_HEAD_DIM else f"{spec.head_dim}, above {MAX_HEAD_DIM}"
            obstacles["heads"] = "" if group <= MAX_ROWS else f"{group} query heads to a key head, above {MAX_ROWS}"
        check_obstacles(cls.name, obstacles)
        return Support(level=GraphSupport.ALWAYS, reason="kernels read lengths and block tables when they run")

    @classmethod
    def key_ints(
        cls, setup: AttentionSetup, *, num_reqs: int, query_len: int | None, max_seq_len: int
    ) -> tuple[tuple[str, int], ...]:
        """Return nothing: kernels, grids and splits follow from the padded batch."""
        return ()

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
        if width is not None and width <= MAX_QUERY_LEN and width * layer.num_heads <= MAX_ROWS * layer.num_kv_heads:
            self._decode(layer, query, cache, metadata, width, out)
        else:
            _varlen(layer, query, cache, metadata, out)

    def _decode(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        query_len: int,
        out: torch.Tensor,
    ) -> None:
        from legato.kernels.paged_attention_decode_triton import paged_attention_decode

        config, splits = decode_choice(
            query_len=query_len,
            group=layer.num_heads // layer.num_kv_heads,
            head_dim=layer.head_dim,
            element_bytes=cache.key.element_size(),
            num_reqs=metadata.num_reqs,
            num_kv_heads=layer.num_kv_heads,
            max_context=metadata.block_table.shape[1] * cache.key.shape[1],
            multiprocessors=self._multiprocessors,
        )
        paged_attention_decode(
            query,
            cache.key,
            cache.value,
            out,
            seq_lens=metadata.seq_lens,
            block_table=metadata.block_table,
            query_len=query_len,
            scale=layer.scale,
            window=layer.window,
            num_splits=splits,
            workspace=self._workspace,
            config=config,
        )


def _varlen(
    layer: AttentionLayer, query: torch.Tensor, cache: LayerCache, metadata: AttentionMetadata, out: torch.Tensor
) -> None:
    from legato.kernels.paged_attention_varlen_triton import paged_attention_varlen

    paged_attention_varlen(
        query,
        cache.key,
        cache.value,
        out,
        query_start_loc=metadata.query_start_loc,
        seq_lens=metadata.seq_lens,
        block_table=metadata.block_table,
        max_query_len=metadata.max_query_len,
        scale=layer.scale,
        window=layer.window,
    )
