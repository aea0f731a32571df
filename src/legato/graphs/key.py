"""What identifies one captured graph, the shape of a batch that asks for one, and the answer. Pure values."""

from dataclasses import dataclass

from legato.graphs.modes import GraphMode, SamplerVariant, Stage
from legato.observability.reasons import Reason

KeyInts = tuple[tuple[str, int], ...]
"""(name, value) of each host integer that an attention backend declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """What dispatch needs to know of a batch."""

    num_tokens: int
    num_reqs: int
    query_len: int | None
    """Width of a uniform batch; None: mixed. A batch that is uniform only by chance is mixed."""
    sampler: SamplerVariant
    key_ints: KeyInts = ()
    """Host integers that the attention backend declared for this batch."""
    needs_hidden_states: bool = False
    """Somebody reads the hidden states of all tokens, which no full graph leaves behind."""
    guided: bool = False
    """The host forbids tokens once it knows the ones before: no graph that samples can serve."""
    stage: Stage = Stage.TARGET
    num_drafts: int = 0
    """Drafts that the step makes for each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphKey:
    """Padded sizes are capacities: a key serves any batch that fits in them."""

    stage: Stage = Stage.TARGET
    mode: GraphMode
    num_tokens: int
    num_reqs: int | None = None
    """None: the graph does not see requests (PIECEWISE)."""
    query_len: int | None = None
    """None: the graph accepts any mix of query lengths."""
    sampler: SamplerVariant | None = None
    """Sampler inside the graph; None: the graph ends with the logits (FULL) or hidden states (PIECEWISE)."""
    key_ints: KeyInts = ()
    """Host integers of the attention backend, frozen at capture."""
    num_drafts: int = 0
    """Drafts that the graph makes for each request; 0 of a stage that makes none, too."""

    def serves(self, shape: BatchShape) -> bool:
        """Return whether a batch of this shape may be replayed on this graph."""
        return (
            self.num_tokens >= shape.num_tokens
            and (self.num_reqs is None or self.num_reqs >= shape.num_reqs)
            and (self.query_len is None or self.query_len == shape.query_len)
            and (self.sampler is None or (self.sampler >= shape.sampler and not shape.guided))
            and (self.mode is GraphMode.PIECEWISE or self.key_ints == shape.key_ints)
            and not (self.mode is GraphMode.FULL and shape.needs_hidden_states)
            and (self.stage is shape.stage or (self.stage is Stage.ROUND and shape.stage is Stage.TARGET))
            and (self.num_drafts == shape.num_drafts or self.stage not in (Stage.ROUND, Stage.DRAFT))
        )

    def __str__(self) -> str:
        parts = [f"{self.stage}/{self.mode}", f"tokens={self.num_tokens}"]
        if self.num_reqs is not None:
            parts.append(f"reqs={self.num_reqs}")
        if self.query_len is not None:
            parts.append(f"query_len={self.query_len}")
        if self.sampler is not None:
            parts.append(str(self.sampler))
        if self.stage in (Stage.ROUND, Stage.DRAFT):
            parts.append(f"drafts={self.num_drafts}")
        parts += [f"{name}={value}" for name, value in self.key_ints]
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What a batch runs as."""

    requested: GraphMode
    """What the user's policy gives this class of batch."""
    mode: GraphMode
    key: GraphKey | None
    """None: eager."""
    reason: Reason | None
    """Why the mode is not FULL; None: it is."""
