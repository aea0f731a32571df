"""The words of the graph core: modes, stages, policies and sampler variants. Owns names and order, no behaviour."""

from enum import IntEnum, StrEnum


class GraphMode(IntEnum):
    """How one stage of one step runs; larger is better."""

    EAGER = 0
    """No graph."""
    PIECEWISE = 1
    """Graphs between the attention calls, attention itself eager."""
    FULL = 2
    """One graph holds the whole stage."""

    def __str__(self) -> str:
        return self.name.lower()


class Stage(StrEnum):
    """What a graph computes."""

    TARGET = "target"
    """The model, up to sampling where the graph holds that."""
    ROUND = "round"
    """The model, sampling, and everything a drafter does: a whole step of speculative decoding."""
    EXTEND = "extend"
    """A drafter's pass over the step's tokens, where no graph of a round holds it."""
    DRAFT = "draft"
    """A drafter's passes over the requests."""


class GraphPolicy(StrEnum):
    """What the user asks for."""

    NONE = "none"
    PIECEWISE = "piecewise"
    FULL = "full"
    FULL_DECODE_ONLY = "full_decode_only"
    FULL_AND_PIECEWISE = "full_and_piecewise"

    @property
    def mixed_mode(self) -> GraphMode:
        """Mode of a mixed batch."""
        return {
            GraphPolicy.FULL: GraphMode.FULL,
            GraphPolicy.PIECEWISE: GraphMode.PIECEWISE,
            GraphPolicy.FULL_AND_PIECEWISE: GraphMode.PIECEWISE,
        }.get(self, GraphMode.EAGER)

    @property
    def uniform_mode(self) -> GraphMode:
        """Mode of a uniform batch."""
        return {GraphPolicy.NONE: GraphMode.EAGER, GraphPolicy.PIECEWISE: GraphMode.PIECEWISE}.get(self, GraphMode.FULL)


class SamplerVariant(IntEnum):
    """What the sampler must be able to do for a batch; a larger one does all that a smaller one does."""

    GREEDY = 0
    """Every row takes the best token."""
    TEMPERATURE = 1
    """Some rows draw from the whole distribution."""
    FILTERED = 2
    """Some rows use top-k, top-p or min-p."""
    GENERAL = 3
    """Some rows change logits first: penalties, bias, allowed or bad words, min_tokens. Never inside a graph."""

    def __str__(self) -> str:
        return self.name.lower()


GRAPH_SAMPLERS: tuple[SamplerVariant | None, ...] = (
    SamplerVariant.GREEDY,
    SamplerVariant.TEMPERATURE,
    SamplerVariant.FILTERED,
    None,
)
"""What full graphs end with; None, the logits, serves every batch that the others do not."""
