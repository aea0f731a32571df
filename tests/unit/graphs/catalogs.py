"""Catalogs for the tests of the graph core, and a second opinion on which key serves a batch."""

from functools import cache

from legato.attention.graph_support import GraphSupport, Support
from legato.graphs.catalog import Catalog, GraphLimits, KeyIntsOf, build_catalog
from legato.graphs.key import BatchShape, GraphKey
from legato.graphs.modes import GRAPH_SAMPLERS, GraphMode, GraphPolicy, SamplerVariant
from legato.graphs.policy import ResolvedPolicy, resolve_policy

MAX_NUM_SEQS = (1, 6, 32, 33, 37, 64, 256)
WIDTHS = tuple(range(1, 17))


def no_key_ints(num_reqs: int, query_len: int | None, max_seq_len: int) -> tuple[tuple[str, int], ...]:
    return ()


def resolved(
    policy: GraphPolicy, level: GraphSupport, widths: tuple[int, ...] = (1,), *, strict: bool = False
) -> ResolvedPolicy:
    support = Support(level=level, reason="because")
    return resolve_policy(policy, support, backend="testing", widths=widths, strict=strict)


def limits(
    *, max_num_seqs: int = 8, max_num_batched_tokens: int = 64, widths: tuple[int, ...] = (1,), max_model_len: int = 512
) -> GraphLimits:
    return GraphLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        widths=widths,
    )


def catalog(
    policy: GraphPolicy = GraphPolicy.FULL_AND_PIECEWISE,
    level: GraphSupport = GraphSupport.ALWAYS,
    within: GraphLimits | None = None,
    *,
    sizes: tuple[int, ...] | None = None,
    samplers: tuple[SamplerVariant | None, ...] = GRAPH_SAMPLERS,
    key_ints: KeyIntsOf = no_key_ints,
) -> Catalog:
    within = within or limits()
    return build_catalog(
        resolved(policy, level, within.widths), within, sizes=sizes, samplers=samplers, key_ints=key_ints
    )


@cache
def ladder_catalog(policy: GraphPolicy, level: GraphSupport, max_num_seqs: int, width: int) -> Catalog:
    """The catalog of an engine that verifies ``width`` tokens a step, and decodes one."""
    return catalog(policy, level, ladder_limits(max_num_seqs, width))


def ladder_limits(max_num_seqs: int, width: int) -> GraphLimits:
    return limits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max(512, max_num_seqs * width),
        widths=tuple(sorted({1, width})),
    )


def shape(num_tokens: int, num_reqs: int, query_len: int | None = None, **changes: object) -> BatchShape:
    fields: dict[str, object] = {"sampler": SamplerVariant.GREEDY} | changes
    return BatchShape(num_tokens=num_tokens, num_reqs=num_reqs, query_len=query_len, **fields)


def fits(key: GraphKey, batch: BatchShape) -> bool:
    """Whether ``key`` may serve ``batch``, in the words of the design."""
    if key.num_tokens < batch.num_tokens:
        return False
    if key.mode is GraphMode.PIECEWISE:
        return True
    return (
        key.num_reqs is not None
        and key.num_reqs >= batch.num_reqs
        and key.query_len in (None, batch.query_len)
        and (key.sampler is None or key.sampler >= batch.sampler)
        and key.key_ints == batch.key_ints
        and not batch.needs_hidden_states
    )


def best_key(of: Catalog, given: GraphMode, batch: BatchShape) -> GraphKey | None:
    """The key that ought to be taken, found by looking at all of them."""
    serving = [key for key in of.keys if key.mode <= given and fits(key, batch)]
    if not serving:
        return None

    def cost(key: GraphKey) -> tuple[int, int, int, int, int]:
        sampler = 99 if key.sampler is None else int(key.sampler)
        return -int(key.mode), key.num_tokens, int(key.query_len is None), key.num_reqs or 0, sampler

    return min(serving, key=cost)
