"""The graphs of an engine as JSON values, captured or only planned."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from legato.config.engine import EngineConfig
from legato.engine.memory import MemoryReport
from legato.graphs.captured import CapturedGraph
from legato.graphs.catalog import Catalog
from legato.graphs.key import GraphKey
from legato.runner.graph_capture import DroppedKey


def graph_report(
    config: EngineConfig,
    catalog: Catalog,
    graphs: Mapping[GraphKey, CapturedGraph],
    dropped: Sequence[DroppedKey],
    *,
    shared_bytes: int | None,
    memory: MemoryReport,
) -> dict[str, Any]:
    """Return ``policy``, ``decisions``, ``catalog`` (one entry per key), ``dropped`` and ``memory`` in bytes.

    ``bytes``, ``nodes`` and ``capture_ms`` are null for a key that is not captured. The bytes of all keys and
    ``shared_bytes``, in which they compute, are ``graphs`` of ``memory``.
    """
    return {
        "policy": config.graph_policy,
        "backend": config.attention_backend,
        "compile": config.compile,
        "mixed": str(catalog.policy.mixed),
        "uniform": {str(width): str(mode) for width, mode in catalog.policy.uniform.items()},
        "decisions": [
            {name: getattr(decision, name) for name in ("subject", "requested", "given", "reason")}
            for decision in config.decisions
        ],
        "catalog": [_entry(key, config.attention_backend, graphs.get(key)) for key in catalog.keys],
        "dropped": [{"key": str(drop.key), "reason": str(drop.reason), "detail": drop.detail} for drop in dropped],
        "shared_bytes": shared_bytes,
        "memory": asdict(memory),
    }


def _entry(key: GraphKey, backend: str, graph: CapturedGraph | None) -> dict[str, Any]:
    return {
        "key": str(key),
        "stage": str(key.stage),
        "mode": str(key.mode),
        "num_tokens": key.num_tokens,
        "num_reqs": key.num_reqs,
        "query_len": key.query_len,
        "sampler": None if key.sampler is None else str(key.sampler),
        "key_ints": dict(key.key_ints),
        "backend": backend,
        "bytes": None if graph is None else graph.num_bytes,
        "nodes": None if graph is None else graph.num_nodes,
        "capture_ms": None if graph is None else round(graph.capture_ms, 3),
    }
