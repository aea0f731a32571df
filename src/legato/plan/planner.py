"""ScheduledBatch -> ExecutionPlan. Owns the classification of a batch and its padding; pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add

from legato.flow.execution_plan import ExecutionPlan, StagePlan
from legato.flow.scheduled_batch import ScheduledBatch, ScheduledRequest
from legato.graphs.catalog import Catalog, GraphLimits
from legato.graphs.dispatch import dispatch
from legato.graphs.key import BatchShape, Dispatched, KeyInts
from legato.graphs.modes import GraphMode, SamplerVariant, Stage
from legato.observability.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans steps within ``limits``; ``key_ints`` are the attention backend's, by (num_reqs, query_len, seq_len)."""

    limits: GraphLimits
    key_ints: Callable[[int, int | None, int], KeyInts]
    draft_stages: tuple[Stage, ...] = ()
    """What a drafter does after the target; empty: there is no drafter."""

    def plan(self, batch: ScheduledBatch, catalog: Catalog) -> ExecutionPlan:
        """Return how the step runs on the graphs of ``catalog``."""
        requests = batch.requests
        query_lens = [len(request.token_ids) for request in requests]
        prompt_logprobs = tuple([_prompt_logprobs(request) for request in requests])
        shape = self._shape(batch, query_lens, needs_hidden_states=any(n is not None for n in prompt_logprobs))
        dispatched = dispatch(catalog, shape)
        key, reason = dispatched.key, dispatched.reason
        sample_in_graph = key is not None and key.mode is GraphMode.FULL and key.sampler is not None
        if dispatched.mode is GraphMode.FULL and not sample_in_graph:
            reason = _why_not_sampled(shape)
        return ExecutionPlan(
            step=batch.step,
            target=self._stage(shape, dispatched, reason),
            sample_in_graph=sample_in_graph,
            max_query_len=max(query_lens),
            rows=tuple([request.row for request in requests]),
            query_start_loc=tuple(accumulate(query_lens, initial=0)),
            samples=tuple([request.samples for request in requests]),
            max_logprobs=_most({request.params.logprobs for request in requests if request.samples}),
            prompt_logprobs=prompt_logprobs,
            num_drafts=tuple([request.num_drafts for request in requests]) if self.draft_stages else (),
            draft_stages=self._draft_stages(catalog, shape, dispatched) if self.draft_stages else (),
        )

    def _draft_stages(self, catalog: Catalog, shape: BatchShape, dispatched: Dispatched) -> tuple[StagePlan, ...]:
        """Return how the drafter's stages run after the target: in its graph, or each by itself.

        A uniform step that makes no drafts is plain decoding: what follows the target is only that rows go on.
        """
        plain = shape.query_len == 1 and not shape.num_drafts
        if dispatched.key is not None and dispatched.key.stage is Stage.ROUND:
            return () if plain else (_inside_the_round(shape, dispatched),)
        plans = []
        for stage in self.draft_stages:
            if plain and stage is Stage.EXTEND:
                continue
            own_shape = replace(shape, stage=stage, sampler=SamplerVariant.GREEDY, needs_hidden_states=False)
            if stage is Stage.DRAFT:
                key_ints = self.key_ints(shape.num_reqs, 1, self.limits.max_model_len)
                own_shape = replace(own_shape, num_tokens=shape.num_reqs, query_len=1, key_ints=key_ints)
            own = dispatch(catalog, own_shape)
            plans.append(self._stage(own_shape, own, own.reason))
        return tuple(plans)

    def _stage(self, shape: BatchShape, dispatched: Dispatched, reason: Reason | None) -> StagePlan:
        """Return how a stage of ``shape`` runs, which ``shape`` names, padded to its graph."""
        num_tokens, num_reqs, key = shape.num_tokens, shape.num_reqs, dispatched.key
        if key is not None:
            num_tokens, num_reqs = key.num_tokens, self.limits.max_num_seqs if key.num_reqs is None else key.num_reqs
        return StagePlan(
            stage=shape.stage,
            shape=shape,
            requested=dispatched.requested,
            mode=dispatched.mode,
            key=key,
            reason=reason,
            num_tokens_padded=num_tokens,
            num_reqs_padded=num_reqs,
        )

    def _shape(self, batch: ScheduledBatch, query_lens: list[int], *, needs_hidden_states: bool) -> BatchShape:
        requests, num_drafts = batch.requests, 0
        if self.draft_stages:
            num_drafts = self.limits.numbers_of_drafts[-1] if batch.num_drafts is None else batch.num_drafts
        query_len = uniform_width(requests, self.limits.widths)
        computed = [request.num_computed_tokens for request in requests]
        return BatchShape(
            num_tokens=sum(query_lens),
            num_reqs=len(requests),
            guided=batch.guided,
            query_len=query_len,
            sampler=max({request.sampler for request in requests if request.samples}, default=SamplerVariant.GREEDY),
            key_ints=self.key_ints(len(requests), query_len, max(map(add, computed, query_lens))),
            needs_hidden_states=needs_hidden_states,
            num_drafts=num_drafts,
        )


def _why_not_sampled(shape: BatchShape) -> Reason:
    """Return why a full graph ended with the logits. What would hold for an unguided batch too comes first."""
    return Reason.GUIDED_OUTPUT if shape.guided and shape.sampler < SamplerVariant.GENERAL else Reason.SAMPLER_VARIANT


def _inside_the_round(shape: BatchShape, round_graph: Dispatched) -> StagePlan:
    """Return the plan of drafting in the target's graph. What that graph pads is counted with the target."""
    return StagePlan(
        stage=Stage.DRAFT,
        shape=shape,
        requested=round_graph.requested,
        mode=round_graph.mode,
        key=None,
        reason=None,
        num_tokens_padded=shape.num_tokens,
        num_reqs_padded=shape.num_reqs,
    )


def uniform_width(requests: tuple[ScheduledRequest, ...], widths: tuple[int, ...]) -> int | None:
    """Return the common query length of a uniform batch, or None for a mixed one.

    Uniform means that every request decodes. A prompt of exactly the width, or a last chunk of that length, looks
    alike but needs its tokens from the host: such a batch is mixed.
    """
    lengths = {len(request.token_ids) for request in requests}
    if len(lengths) != 1 or {request.is_decode for request in requests} != {True}:
        return None
    (length,) = lengths
    return length if length in widths else None


def _prompt_logprobs(request: ScheduledRequest) -> int | None:
    """Return how many are wanted in this step; None once the prompt is done."""
    return request.params.prompt_logprobs if request.next_prompt_token_ids else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
