"""Plan -> runner: how the step runs. A frozen value of host integers; it names no tensor and needs no device."""

from dataclasses import dataclass

from legato.graphs.key import BatchShape, GraphKey
from legato.graphs.modes import GraphMode, Stage
from legato.observability.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """How one stage of a step runs: the target, or what a drafter does after it."""

    stage: Stage
    shape: BatchShape
    requested: GraphMode
    """Best mode that the policy gives this class of batch."""
    mode: GraphMode
    key: GraphKey | None
    """The captured graph to replay; None: eager, or part of the round's graph, which the mode tells."""
    reason: Reason | None
    """Why ``mode`` is not ``requested``, or why sampling runs outside the graph."""
    num_tokens_padded: int
    num_reqs_padded: int

    @property
    def query_len(self) -> int | None:
        """Width that the device computes for every request; None: a mix, so that it reads tokens from the host."""
        return (self.shape if self.key is None else self.key).query_len


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan:
    """Everything that decides what the device does in a step, but for the tokens themselves."""

    step: int
    target: StagePlan
    """The model, up to sampling where its graph holds that; a graph of a whole round holds the drafter too."""
    sample_in_graph: bool
    max_query_len: int
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
    def stages(self) -> tuple[StagePlan, ...]:
        """The target, and what follows it, in order."""
        return (self.target, *self.draft_stages)

    @property
    def keys(self) -> tuple[GraphKey, ...]:
        """The graphs that the step replays, in order."""
        return tuple(stage.key for stage in self.stages if stage.key is not None)
