"""Which batch selects a graph. Owns the search, which asks the planner itself; pure, nothing runs."""

from collections.abc import Iterator

from legato.flow.sampler_variant import variant_of
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import ScheduledBatch, ScheduledRequest
from legato.graphs.catalog import Catalog, GraphLimits
from legato.graphs.key import GraphKey
from legato.graphs.ladder import context_lengths
from legato.graphs.modes import SamplerVariant, Stage
from legato.plan.planner import Planner

_PARAMS: dict[SamplerVariant | None, SamplingParams] = {
    SamplerVariant.GREEDY: SamplingParams(temperature=0.0),
    SamplerVariant.TEMPERATURE: SamplingParams(temperature=1.0),
    SamplerVariant.FILTERED: SamplingParams(temperature=1.0, top_p=0.9),
    None: SamplingParams(temperature=0.0, repetition_penalty=1.1),
}
"""What a key's graph ends with -> parameters that need it."""


def params_for(key: GraphKey) -> SamplingParams:
    """Return sampling parameters that the key serves; greedy where it has no sampler because it sees no requests."""
    return _PARAMS[SamplerVariant.GREEDY if key.num_reqs is None else key.sampler]


def drafts_of(key: GraphKey) -> int | None:
    """Return the drafts that a step on ``key`` makes for each request; None: any number, the key makes none."""
    return key.num_drafts if key.stage in (Stage.ROUND, Stage.DRAFT) else None


def batch_that_selects(key: GraphKey, planner: Planner, catalog: Catalog) -> ScheduledBatch | None:
    """Return a batch within the scheduler's limits that the planner runs on ``key``; None: it finds none.

    A batch of the key's own size is enough to try: what serves it before this key also serves all smaller ones.
    """
    return next((batch for batch in _candidates(key, planner) if key in planner.plan(batch, catalog).keys), None)


def _candidates(key: GraphKey, planner: Planner) -> Iterator[ScheduledBatch]:
    limits = planner.limits
    for num_reqs, decodes in _sizes(key, limits):
        # Where requests are drafted for, each has verified as many drafts as it gets.
        num_tokens = num_reqs * (1 + key.num_drafts) if key.stage is Stage.DRAFT else key.num_tokens
        share, larger = divmod(num_tokens, num_reqs)
        query_lens = [share + (index < larger) for index in range(num_reqs)]
        for seq_len in context_lengths(limits.max_model_len):
            if seq_len >= max(query_lens):
                yield _batch(key, query_lens, seq_len, decodes=decodes)


def _sizes(key: GraphKey, limits: GraphLimits) -> Iterator[tuple[int, bool]]:
    """Yield numbers of requests that may have the key's tokens, and whether all of them decode."""
    if key.query_len is not None:
        yield key.num_tokens // key.query_len, True
        return
    most = min(key.num_tokens, limits.max_num_seqs)
    fewest = -(-key.num_tokens // limits.max_model_len)
    for num_reqs in dict.fromkeys((most, fewest, max(fewest, most // 2))):
        yield num_reqs, False
    if most == key.num_tokens:
        yield most, True


def _batch(key: GraphKey, query_lens: list[int], seq_len: int, *, decodes: bool) -> ScheduledBatch:
    """Return requests with ``seq_len`` tokens each, in the cache and in the step."""
    requests = tuple(
        ScheduledRequest(
            request_id=str(row),
            row=row,
            num_computed_tokens=seq_len - query_len,
            token_ids=(0,) * query_len,
            is_decode=decodes,
            samples=True,
            num_output_tokens=int(decodes),
            sampler=variant_of(params_for(key), int(decodes)),
            params=params_for(key),
            num_drafts=query_len - 1 if decodes and key.sampler is not None else 0,
        )
        for row, query_len in enumerate(query_lens)
    )
    return ScheduledBatch(
        step=1, requests=requests, released_rows=(), admissions=(), block_appends=(), num_drafts=drafts_of(key)
    )
