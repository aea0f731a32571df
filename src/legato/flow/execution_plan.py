"""Plan -> runner: how the step runs. A frozen value of host integers; it names no tensor and needs no device."""

from dataclasses import dataclass

from legato.graphs.key import BatchShape, GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant, Stage
from legato.observability.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """How one of a drafter's stages runs."""

    stage: Stage
    shape: BatchShape
    requested: GraphMode
    mode: GraphMode
    key: GraphKey | None
    """The graph to replay; None: eager, or part of the round's graph, which the mode tells."""
    reason: Reason | None
    num_tokens_padded: int
    num_reqs_padded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """Everything that decides what the device does in a step, but for the tokens themselves."""

    step: int
    shape: BatchShape
    requested: GraphMode
    """Best mode that the policy gives this class of batch."""
    mode: GraphMode
    key: GraphKey | None
    """The captured graph to replay; None: eager."""
    reason: Reason | None
    """Why ``mode`` is not ``requested``, or why sampling runs outside the graph."""
    num_tokens_padded: int
    num_reqs_padded: int
    max_query_len: int
    sampler: SamplerVariant
    sample_in_graph: bool
    rows: tuple[int, ...]
    """[num_reqs] row of each request in device state."""
    query_start_loc: tuple[int, ...]
    """[num_reqs + 1] first token of each request in the step, and the end."""
    samples: tuple[bool, ...]
    """[num_reqs] whether the request yields a token."""
    max_logprobs: int | None
    """Most log-probabilities any request of the batch asks for; None: nobody asks."""
    prompt_logprobs: tuple[int | None, ...]
    """[num_reqs] prompt log-probabilities per request, None: not asked for."""
    num_drafts: tuple[int, ...] = ()
    """[num_reqs] drafts that may stand; empty without a drafter."""
    draft_stages: tuple[StagePlan, ...] = ()
    """What the drafter does after the target, in order."""

    @property
    def keys(self) -> tuple[GraphKey, ...]:
        """The graphs that the step replays, in order."""
        keys = (self.key, *(stage.key for stage in self.draft_stages))
        return tuple(key for key in keys if key is not None)
