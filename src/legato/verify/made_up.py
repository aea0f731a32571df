"""Made-up batches on the engine's own path. Owns how the planner and the runner are handed one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from legato.flow.request import Request
from legato.flow.sampler_variant import variant_of
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import Admission, BlockAppend, ScheduledBatch, ScheduledRequest
from legato.graphs.catalog import Catalog
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, GraphPolicy
from legato.runner.synthetic import SyntheticBatch


def only(key: GraphKey | None, catalog: Catalog) -> Catalog:
    """Return a catalog of one key, or of none, that lets every class of batch have it."""
    policy = catalog.policy
    uniform = dict.fromkeys(policy.uniform, GraphMode.FULL)
    full = GraphMode.FULL
    policy = replace(policy, requested=GraphPolicy.FULL, mixed=full, uniform=uniform, drafts=full)
    return Catalog(policy=policy, keys=() if key is None else (key,))


def as_scheduled(
    batch: SyntheticBatch, params: SamplingParams, *, decodes: Sequence[bool], num_drafts: int | None = None
) -> ScheduledBatch:
    """Return the batch as the scheduler would hand it over, every request just admitted.

    ``decodes``: which requests feed generated tokens; those behind the first of them are drafts, which may stand.
    ``num_drafts``: what the step makes for each request; None: the most.
    """
    starts = (0, *accumulate(batch.query_lens))
    token_ids = [batch.token_ids[starts[i] : starts[i + 1]] for i in range(len(batch.rows))]
    requests = tuple(
        ScheduledRequest(
            request_id=f"made-up-{row}",
            row=row,
            num_computed_tokens=computed,
            token_ids=ids,
            is_decode=decode,
            samples=True,
            num_output_tokens=int(decode),
            sampler=variant_of(params, int(decode)),
            params=params,
            num_drafts=len(ids) - 1 if decode else 0,
        )
        for row, computed, ids, decode in zip(batch.rows, batch.computed, token_ids, decodes, strict=True)
    )
    admissions = tuple(
        Admission(row=one.row, request=_request(one), output_token_ids=(), num_computed_tokens=one.num_computed_tokens)
        for one in requests
    )
    appends = tuple(
        BlockAppend(row=row, start=0, block_ids=blocks) for row, blocks in zip(batch.rows, batch.blocks, strict=True)
    )
    return ScheduledBatch(
        step=1,
        requests=requests,
        released_rows=(),
        admissions=admissions,
        block_appends=appends,
        num_drafts=num_drafts,
    )


def _request(scheduled: ScheduledRequest) -> Request:
    return Request(
        request_id=scheduled.request_id,
        prompt_token_ids=scheduled.token_ids,
        params=scheduled.params,
        seed=scheduled.row,
        stop_token_ids=frozenset(),
        max_tokens=1,
        arrival=0.0,
    )
