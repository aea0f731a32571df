# mypy: disable-error-code="import-not-found"
"""What both kernels of paged attention are launched with: shapes, and tiles that the GPU which is there can hold."""

from typing import Any

import torch

from legato.kernels.gpu_limits_triton import shared_memory_bytes
from legato.kernels.paged_attention_configs import TileConfig, fitted, padded_head
from legato.kernels.paged_attention_loop_triton import dot_precision


def fitting(config: TileConfig, query: torch.Tensor) -> TileConfig:
    """Return ``config`` cut to what the current GPU holds of heads as those of ``query`` [..., head_dim]."""
    return fitted(
        config,
        head_dim=query.shape[-1],
        element_bytes=query.element_size(),
        shared_memory=shared_memory_bytes(),
    )


def launch_constants(
    query: torch.Tensor, key_cache: torch.Tensor, config: TileConfig, window: int | None
) -> dict[str, Any]:
    """Return the constants by name; ``query`` and ``key_cache`` are as the kernels take them."""
    num_heads, head_dim = query.shape[-2:]
    block_size, num_kv_heads = key_cache.shape[1:3]
    return {
        "WINDOW": window or 0,
        "KV_HEADS": num_kv_heads,
        "GROUP": num_heads // num_kv_heads,
        "BLOCK_SIZE": block_size,
        "HEAD_DIM": head_dim,
        "HEAD_PADDED": padded_head(head_dim),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "PRECISION": dot_precision(query.dtype),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }
