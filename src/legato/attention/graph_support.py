"""How far an attention backend can go inside a full graph. Owns the levels and their order."""

from dataclasses import dataclass
from enum import IntEnum


class GraphSupport(IntEnum):
    """Ordered: a model with several backends has the minimum of their levels."""

    NEVER = 0
    """Attention stays eager; only PIECEWISE graphs are possible."""
    UNIFORM_SINGLE_TOKEN = 1
    """Every request has query_len == 1."""
    UNIFORM = 2
    """Every request has the same query_len, as in draft verification."""
    ALWAYS = 3
    """Any mix of prefill and decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A level with the reason for it, decided before anything is built."""

    level: GraphSupport
    reason: str
