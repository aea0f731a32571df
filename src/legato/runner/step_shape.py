"""The host integers that a step is computed with. Owns how a graph's key, or a stage without one, gives them."""

from dataclasses import dataclass

from legato.flow.execution_plan import StagePlan
from legato.graphs.key import GraphKey, KeyInts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Sizes; those of a graph include its padding, and a capture freezes them."""

    num_tokens: int
    num_reqs: int
    query_len: int | None
    """Uniform: tokens are read from the rows. None: from the step's input buffers."""
    max_query_len: int
    key_ints: KeyInts = ()
    num_drafts: int = 0
    """Drafts that are made for each request."""


def graph_shape(key: GraphKey, max_num_seqs: int) -> StepShape:
    """Return the shape that a key's graph is captured with."""
    return StepShape(
        num_tokens=key.num_tokens,
        num_reqs=max_num_seqs if key.num_reqs is None else key.num_reqs,
        query_len=key.query_len,
        max_query_len=key.num_tokens if key.query_len is None else key.query_len,
        key_ints=key.key_ints,
        num_drafts=key.num_drafts,
    )


def own_shape(stage: StagePlan, max_query_len: int) -> StepShape:
    """Return the shape of a stage without the padding of any graph; ``max_query_len``: of the step's mixed batch."""
    query_len = stage.shape.query_len
    return StepShape(
        num_tokens=stage.shape.num_tokens,
        num_reqs=stage.shape.num_reqs,
        query_len=query_len,
        max_query_len=max_query_len if query_len is None else query_len,
        key_ints=stage.shape.key_ints,
        num_drafts=stage.shape.num_drafts,
    )
