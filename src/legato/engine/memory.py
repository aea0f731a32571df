"""How many bytes the KV cache may have. Owns the account of what else needs memory."""

import torch

from legato.config.model import ModelConfig
from legato.config.options import EngineOptions
from legato.device.protocol import Device
from legato.errors import ConfigError
from legato.models.registry import model_class

_CPU_KV_BYTES = 1 << 30
"""A CPU shares its memory with everything else; a user who wants more says so."""
_CUDA_RESERVE_BYTES = 3 << 30
"""Graphs, activations of the largest step and kernel libraries."""


def kv_budget_bytes(options: EngineOptions, device: Device, model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the user's bytes, or what is left of the device's share after weights and a reserve.

    Raises ConfigError for a share outside (0, 1].
    """
    share = options.gpu_memory_utilization
    if not 0 < share <= 1:
        raise ConfigError(
            "--gpu-memory-utilization is out of range", {"requested": share, "limit": "more than 0, at most 1"}
        )
    if options.kv_cache_memory_bytes is not None:
        return options.kv_cache_memory_bytes
    if device.facts.kind == "cpu":
        return _CPU_KV_BYTES
    total, free = device.memory_total_bytes(), device.memory_free_bytes()
    return int(total * share) - (total - free) - weight_bytes(model, dtype) - _CUDA_RESERVE_BYTES


def weight_bytes(model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a model's parameters and tables, without allocating them."""
    skeleton = model_class(model.architecture)(model, dtype, torch.device("meta"))
    tensors = {id(tensor): tensor for tensor in (*skeleton.parameters(), *skeleton.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
