"""Graph settings as other engines spell them. Owns what each means in our words, and says so in a decision each."""

from dataclasses import dataclass
from typing import Any

from legato.config.engine import Decision
from legato.engine.json_option import json_settings
from legato.errors import ConfigError
from legato.graphs.ladder import ladder
from legato.graphs.modes import GraphPolicy

_OPTION, _EXAMPLE = "--compilation-config", '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'
_KEYS = (
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "full_cuda_graph",
    "separate_attention_routine",
    "optimization_level",
)
_LEVELS = (
    GraphPolicy.NONE,
    GraphPolicy.PIECEWISE,
    GraphPolicy.FULL_AND_PIECEWISE,
    GraphPolicy.FULL_AND_PIECEWISE,
)
"""Optimization level -> policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRequest:
    """What the settings ask of graphs; None: they do not say."""

    policy: GraphPolicy | None = None
    sizes: Any = None
    decisions: tuple[Decision, ...] = ()


def foreign_request(text: str | None) -> ForeignRequest:
    """Return what a ``-cc`` text asks for. Raises ConfigError for one that cannot be read.

    ``cudagraph_mode`` comes before the older ``full_cuda_graph``, and that before a level, which is a set of defaults.
    """
    settings = {} if text is None else json_settings(_OPTION, text, _KEYS, _EXAMPLE)
    policy, policy_decisions = _policy(settings)
    sizes, size_decisions = _sizes(settings)
    return ForeignRequest(policy=policy, sizes=sizes, decisions=(*policy_decisions, *size_decisions))


def _policy(settings: dict[str, Any]) -> tuple[GraphPolicy | None, list[Decision]]:
    """Return the policy of the strongest setting, with what it means; the others are said to have no effect."""
    meanings = [_of_mode(settings), _of_full(settings), _of_level(settings)]
    given = [meaning for meaning in meanings if meaning is not None]
    if not given:
        lone = "separate_attention_routine" in settings
        return None, [_ignored("separate_attention_routine", "full_cuda_graph is not set")] if lone else []
    (requested, policy), *weaker = given
    modes = f"{policy.mixed_mode} for mixed batches, {policy.uniform_mode} for uniform ones"
    decision = Decision(subject="graph policy", requested=requested, given=str(policy), reason=modes)
    return policy, [decision, *(_ignored(name, f"{requested} comes first") for name, _ in weaker)]


def _of_mode(settings: dict[str, Any]) -> tuple[str, GraphPolicy] | None:
    if "cudagraph_mode" not in settings:
        return None
    name = settings["cudagraph_mode"]
    try:
        return f"cudagraph_mode {name}", GraphPolicy(str(name).lower())
    except ValueError as error:
        names = ", ".join(policy.name for policy in GraphPolicy)
        raise ConfigError("cudagraph_mode is not known", {"requested": name, "options": names}) from error


def _of_full(settings: dict[str, Any]) -> tuple[str, GraphPolicy] | None:
    """Two routines for mixed and decode batches mean two sets of graphs; one routine, one set for all."""
    for name in ("full_cuda_graph", "separate_attention_routine"):
        if not isinstance(settings.get(name, False), bool):
            raise ConfigError(f"{name} is true or false", {"requested": settings[name], "options": "true | false"})
    if "full_cuda_graph" not in settings:
        return None
    if not settings["full_cuda_graph"]:
        return "full_cuda_graph false", GraphPolicy.PIECEWISE
    if settings.get("separate_attention_routine"):
        return "full_cuda_graph with separate_attention_routine", GraphPolicy.FULL_AND_PIECEWISE
    return "full_cuda_graph", GraphPolicy.FULL


def _of_level(settings: dict[str, Any]) -> tuple[str, GraphPolicy] | None:
    level = settings.get("optimization_level")
    if level is None:
        return None
    if type(level) is not int or level not in range(len(_LEVELS)):
        raise ConfigError("there is no such optimization level", {"requested": level, "options": "0 | 1 | 2 | 3"})
    return f"optimization_level {level}", _LEVELS[level]


def _sizes(settings: dict[str, Any]) -> tuple[Any, list[Decision]]:
    """Return the sizes as given, which are checked where all sizes are, or a ladder up to the largest."""
    largest, sizes = settings.get("max_cudagraph_capture_size"), settings.get("cudagraph_capture_sizes")
    if sizes is not None:
        decision = Decision(
            subject="graph sizes", requested="cudagraph_capture_sizes", given=f"{sizes}", reason="tokens of a step"
        )
        weaker = [_ignored("max_cudagraph_capture_size", "cudagraph_capture_sizes comes first")]
        return sizes, [decision, *(weaker if largest is not None else ())]
    if largest is None:
        return None, []
    if type(largest) is not int or largest < 1:
        raise ConfigError(
            "the largest graph size is out of range", {"requested": largest, "limit": "a positive number of tokens"}
        )
    decision = Decision(
        subject="graph sizes",
        requested=f"max_cudagraph_capture_size {largest}",
        given=f"{len(ladder(largest))} sizes up to {largest}",
        reason="larger steps run without a graph",
    )
    return ladder(largest), [decision]


def _ignored(name: str, reason: str) -> Decision:
    return Decision(subject="graph policy", requested=name, given="no effect", reason=reason)
