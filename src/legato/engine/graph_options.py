"""The graph options, in our words and in other engines'. Owns how they come together in one policy and sizes."""

from dataclasses import dataclass
from typing import Any

from legato.config.engine import Decision
from legato.config.options import EngineOptions
from legato.engine.compilation_config import ForeignRequest, foreign_request
from legato.engine.defaults import DeviceDefaults
from legato.errors import ConfigError
from legato.graphs.modes import GraphPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """What the user asks of graphs."""

    policy: GraphPolicy
    sizes: tuple[int, ...] | None
    decisions: tuple[Decision, ...]


def graph_request(options: EngineOptions, defaults: DeviceDefaults) -> GraphRequest:
    """Return policy and sizes from ``--graph-policy``, ``--graph-sizes``, ``--enforce-eager`` and ``-cc``.

    Raises ConfigError for options that contradict each other, and for one that cannot be read.
    """
    foreign = foreign_request(options.compilation_config)
    given = {
        "--enforce-eager": GraphPolicy.NONE if options.enforce_eager else None,
        "--graph-policy": _own_policy(options.graph_policy),
        "--compilation-config": foreign.policy,
    }
    asked = {name: policy for name, policy in given.items() if policy is not None}
    if len(set(asked.values())) > 1:
        raise ConfigError(
            "the graph options contradict each other",
            {name: f"means --graph-policy {policy}" for name, policy in asked.items()} | {"options": "keep one"},
        )
    decisions = foreign.decisions if asked else (*foreign.decisions, _default(defaults))
    sizes, size_decisions = _sizes(options, foreign)
    return GraphRequest(
        policy=next(iter(asked.values()), defaults.graph_policy), sizes=sizes, decisions=(*decisions, *size_decisions)
    )


def _own_policy(name: str | None) -> GraphPolicy | None:
    if name is None:
        return None
    try:
        return GraphPolicy(name.lower())
    except ValueError as error:
        details = {"requested": f"--graph-policy {name}", "options": " | ".join(GraphPolicy)}
        raise ConfigError("there is no such graph policy", details) from error


def _default(defaults: DeviceDefaults) -> Decision:
    return Decision(
        subject="graph policy", requested="default", given=str(defaults.graph_policy), reason=defaults.policy_reason
    )


def _sizes(options: EngineOptions, foreign: ForeignRequest) -> tuple[tuple[int, ...] | None, tuple[Decision, ...]]:
    """Return the sizes, ours before another engine's, which are then said to have no effect."""
    own = _checked_sizes(options.graph_sizes)
    if own is None or foreign.sizes is None:
        return own or _checked_sizes(foreign.sizes), ()
    decision = Decision(
        subject="graph sizes",
        requested="--compilation-config",
        given=f"{list(own)}",
        reason="--graph-sizes comes first",
    )
    return own, (decision,)


def _checked_sizes(sizes: Any) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    good = isinstance(sizes, (list, tuple)) and all(type(size) is int and size > 0 for size in sizes)
    if not good or not sizes:
        raise ConfigError(
            "graph sizes are positive numbers of tokens", {"requested": sizes, "options": "--graph-sizes 1,2,4,8"}
        )
    return tuple(sorted(set(sizes)))
