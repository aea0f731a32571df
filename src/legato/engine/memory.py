"""How many bytes the KV cache may have, and what everything took in the end. Owns the account of memory."""

from dataclasses import dataclass

import torch

from legato.config.engine import Decision
from legato.config.model import ModelConfig
from legato.config.options import EngineOptions
from legato.device.protocol import Device
from legato.errors import ConfigError
from legato.models.registry import model_class
from legato.models.sizes import module_bytes

_SHARED_KV_BYTES = 1 << 30
"""A CPU shares its memory with everything else; a user who wants more says so."""
_PLANNED_RESERVE_BYTES = 1 << 30
"""Graphs and activations of the largest step, until they are measured."""
_TOLERANCE, _TOLERATED_BYTES = 0.1, 64 << 20
"""An estimate may be wrong by so much of the actual bytes, or by so many bytes where those are few."""
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes of the device by what they are for; None: not measured."""

    weights: int
    activations: int | None
    graphs_estimated: int | None
    graphs: int | None
    kv_cache: int | None
    kv_cache_tokens: int | None
    """Tokens of all sequences together that the cache holds."""

    def __str__(self) -> str:
        estimated = f" (estimated {_gib(self.graphs_estimated)})" if self.graphs_estimated is not None else ""
        return (
            f"memory in GiB: weights {_gib(self.weights)}, activations {_gib(self.activations)}, "
            f"graphs {_gib(self.graphs)}{estimated}, KV cache {_gib(self.kv_cache)} for {self.kv_cache_tokens} tokens"
        )

    def wrong_estimate(self) -> tuple[Decision, ...]:
        """Return a decision that tells of an estimate which the graphs did not keep; nothing where they did."""
        if self.graphs is None or self.graphs_estimated is None:
            return ()
        if abs(self.graphs - self.graphs_estimated) <= max(_TOLERATED_BYTES, _TOLERANCE * self.graphs):
            return ()
        found = f"{_gib(self.graphs)} GiB"
        return (
            Decision(
                subject="graph memory",
                requested=f"estimated {_gib(self.graphs_estimated)} GiB",
                given=found,
                reason="the KV cache was sized by the estimate; --kv-cache-memory-bytes sets its size",
            ),
        )


def kv_is_measured(options: EngineOptions, device: Device) -> bool:
    """Return whether the cache takes what measurements leave, rather than a number that is known beforehand."""
    return options.kv_cache_memory_bytes is None and device.has_own_memory


def planned_kv_bytes(options: EngineOptions, device: Device, model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the user's bytes, or what is likely to be left of the device's share.

    Raises ConfigError for a share outside (0, 1].
    """
    share = options.gpu_memory_utilization
    if not 0 < share <= 1:
        raise ConfigError(
            "--gpu-memory-utilization is out of range", {"requested": share, "limit": "more than 0, at most 1"}
        )
    if options.kv_cache_memory_bytes is not None:
        return options.kv_cache_memory_bytes
    if not device.has_own_memory:
        return _SHARED_KV_BYTES
    return left_for_kv(device, share=share, still_needed=weight_bytes(model, dtype) + _PLANNED_RESERVE_BYTES)


def left_for_kv(device: Device, *, share: float, still_needed: int) -> int:
    """Return the bytes of the device's ``share`` that are neither in use nor ``still_needed``; negative: too few."""
    total = device.memory_total_bytes()
    return int(total * share) - (total - device.memory_free_bytes()) - still_needed


def weight_bytes(model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a model's parameters and tables, without allocating them."""
    skeleton = model_class(model.architecture)(model, dtype, torch.device("meta"))
    return module_bytes(skeleton)


def _gib(num_bytes: int | None) -> str:
    return "not measured" if num_bytes is None else f"{num_bytes / _GIB:.2f}"
