"""The graph options, in our words and in other engines'. Owns their translation into one policy and sizes."""

import json
from dataclasses import dataclass
from typing import Any

from legato.config.engine import Decision
from legato.config.options import EngineOptions
from legato.engine.defaults import DeviceDefaults
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy

_KNOWN = ("cudagraph_mode", "cudagraph_capture_sizes", "full_cuda_graph", "separate_attention_routine")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """What the user asks of graphs."""

    policy: GraphPolicy
    sizes: tuple[int, ...] | None
    decisions: tuple[Decision, ...]


def graph_request(options: EngineOptions, defaults: DeviceDefaults) -> GraphRequest:
    """Return policy and sizes from ``--graph-policy``, ``--graph-sizes``, ``--enforce-eager`` and ``-cc``.

    Raises ConfigError for options that contradict each other, and for a ``-cc`` text that cannot be read.
    """
    foreign = _parse(options.compilation_config)
    given = {
        "--enforce-eager": GraphPolicy.NONE if options.enforce_eager else None,
        "--graph-policy": None if options.graph_policy is None else GraphPolicy(options.graph_policy),
        "--compilation-config": _foreign_policy(foreign),
    }
    asked = {name: policy for name, policy in given.items() if policy is not None}
    if len(set(asked.values())) > 1:
        raise ConfigError(
            "the graph options contradict each other",
            {name: f"means --graph-policy {policy}" for name, policy in asked.items()} | {"options": "keep one"},
        )
    decisions: tuple[Decision, ...] = ()
    if not asked:
        decisions = (
            Decision(
                subject="graph policy",
                requested="default",
                given=str(defaults.graph_policy),
                reason=defaults.policy_reason,
            ),
        )
    sizes = options.graph_sizes if options.graph_sizes is not None else foreign.get("cudagraph_capture_sizes")
    return GraphRequest(
        policy=next(iter(asked.values()), defaults.graph_policy), sizes=_checked_sizes(sizes), decisions=decisions
    )


def _parse(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            "--compilation-config is not JSON", {"requested": text, "found": f"{error.msg} at {error.pos}"}
        ) from error
    if not isinstance(value, dict):
        raise ConfigError("--compilation-config is not a JSON object", {"requested": text})
    unknown = sorted(set(value) - set(_KNOWN))
    if unknown:
        raise ConfigError(
            "--compilation-config has settings that Legato does not know",
            {"requested": ", ".join(unknown), "options": ", ".join(_KNOWN)},
        )
    settings = {name: setting for name, setting in value.items() if setting is not None}
    for name in ("full_cuda_graph", "separate_attention_routine"):
        if not isinstance(settings.get(name, False), bool):
            raise ConfigError(f"{name} is true or false", {"requested": settings[name]})
    return settings


def _foreign_policy(foreign: dict[str, Any]) -> GraphPolicy | None:
    """Return the policy that other engines' settings mean, None where they name none."""
    if "cudagraph_mode" in foreign:
        name = str(foreign["cudagraph_mode"]).lower()
        try:
            return GraphPolicy(name)
        except ValueError as error:
            names = ", ".join(policy.name for policy in GraphPolicy)
            raise ConfigError(
                "cudagraph_mode is not known", {"requested": foreign["cudagraph_mode"], "options": names}
            ) from error
    if foreign.get("full_cuda_graph"):
        # Two routines for mixed and decode batches mean two sets of graphs; one routine, one set for all.
        separate = foreign.get("separate_attention_routine")
        return GraphPolicy.FULL_AND_PIECEWISE if separate else GraphPolicy.FULL
    return None


def _checked_sizes(sizes: Any) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    good = isinstance(sizes, (list, tuple)) and all(type(size) is int and size > 0 for size in sizes)
    if not good or not sizes:
        raise ConfigError(
            "graph sizes are positive numbers of tokens", {"requested": sizes, "options": "--graph-sizes 1,2,4,8"}
        )
    return tuple(sorted(set(sizes)))
