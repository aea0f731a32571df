"""Which graphs exist. Owns the set of keys and what was dropped from it; a value, replaced rather than changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from legato.graphs.key import BatchShape, Dispatched, GraphKey, KeyInts
from legato.graphs.ladder import chosen_sizes, context_lengths
from legato.graphs.modes import GRAPH_SAMPLERS, GraphMode, SamplerVariant, Stage
from legato.graphs.policy import ResolvedPolicy
from legato.observability.reasons import Reason

KeyIntsOf = Callable[[int, int | None, int], KeyInts]
"""(num_reqs, query_len, max_seq_len) -> the backend's host integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLimits:
    """The batches that the scheduler can make."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    widths: tuple[int, ...] = (1,)
    """Query lengths of uniform batches."""

    @property
    def numbers_of_drafts(self) -> tuple[int, ...]:
        """What each decode may be fed behind its next token."""
        return tuple(width - 1 for width in self.widths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All keys in the order of dispatch: full before piecewise, small before large."""

    policy: ResolvedPolicy
    keys: tuple[GraphKey, ...]
    dropped: Mapping[GraphKey, Reason] = field(default_factory=dict)
    dispatched: dict[BatchShape, Dispatched] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What uniform batches were given, of which there are few shapes; a catalog with other keys begins anew."""

    @property
    def mixed_sizes(self) -> tuple[int, ...]:
        """Tokens that graphs for any mix of requests are captured at, ascending; empty where mixes run eagerly."""
        return tuple(sorted({key.num_tokens for key in self.keys if key.query_len is None}))

    def without(self, key: GraphKey, reason: Reason) -> "Catalog":
        """Return the catalog with one key dropped."""
        keys = tuple(other for other in self.keys if other != key)
        return replace(self, keys=keys, dropped={**self.dropped, key: reason})


def build_catalog(
    policy: ResolvedPolicy,
    limits: GraphLimits,
    *,
    sizes: tuple[int, ...] | None,
    key_ints: KeyIntsOf,
    samplers: tuple[SamplerVariant | None, ...] = GRAPH_SAMPLERS,
    draft_stages: tuple[Stage, ...] = (),
) -> Catalog:
    """Return every key that the policy asks for.

    ``sizes``: tokens, the user's own; None: ladders. ``samplers``: what full graphs end with; None among them: logits.
    ``draft_stages``: what a drafter does after the target; full graphs with a sampler hold that too, and each stage
    has graphs of its own for steps that sample outside a graph.
    """
    keys: set[GraphKey] = set()
    for width, mode in policy.uniform.items():
        if mode is GraphMode.FULL:
            requests = _uniform_sizes(sizes, limits, width)
            keys |= _full_keys([(reqs * width, reqs, width) for reqs in requests], samplers, limits, key_ints)
    tokens = chosen_sizes(sizes, limits.max_num_batched_tokens)
    if policy.mixed is GraphMode.FULL:
        keys |= _full_keys(
            [(size, min(size, limits.max_num_seqs), None) for size in tokens], samplers, limits, key_ints
        )
    if GraphMode.PIECEWISE in (policy.mixed, *policy.uniform.values()):
        keys |= {GraphKey(mode=GraphMode.PIECEWISE, num_tokens=size) for size in tokens}
    if draft_stages:
        keys = {drafting for key in keys for drafting in _in_rounds(key, limits.numbers_of_drafts)}
        keys |= _draft_keys(policy, limits, keys, sizes, draft_stages, key_ints)
    return Catalog(policy=policy, keys=tuple(sorted(keys, key=_dispatch_order)))


def _in_rounds(key: GraphKey, numbers_of_drafts: tuple[int, ...]) -> tuple[GraphKey, ...]:
    """Return the keys of an engine with a drafter: where the graph samples, it drafts too.

    A round makes as many drafts as it verifies, which a graph for any mix of widths does not tell.
    """
    if key.sampler is None:
        return (key,)
    numbers = numbers_of_drafts if key.query_len is None else (key.query_len - 1,)
    return tuple(replace(key, stage=Stage.ROUND, num_drafts=number) for number in numbers)


def _draft_keys(
    policy: ResolvedPolicy,
    limits: GraphLimits,
    keys: set[GraphKey],
    sizes: tuple[int, ...] | None,
    stages: tuple[Stage, ...],
    key_ints: KeyIntsOf,
) -> set[GraphKey]:
    """Return what runs after a target that sampled outside its graph: each pass, as the policy has it."""
    drafting: set[GraphKey] = set()
    if Stage.EXTEND in stages:  # plain decoding, of width 1, leaves the drafter as it is
        drafting |= {replace(key, stage=Stage.EXTEND) for key in keys if key.sampler is None and key.query_len != 1}
    requests = _uniform_sizes(sizes, limits, max(limits.widths))
    passes: set[GraphKey] = set()
    if policy.drafts is GraphMode.FULL:
        passes = _full_keys([(reqs, reqs, 1) for reqs in requests], (None,), limits, key_ints)
    if policy.drafts is GraphMode.PIECEWISE:
        passes = {GraphKey(mode=GraphMode.PIECEWISE, num_tokens=reqs, num_reqs=reqs, query_len=1) for reqs in requests}
    return drafting | {
        replace(key, stage=Stage.DRAFT, num_drafts=number) for key in passes for number in limits.numbers_of_drafts
    }


def _uniform_sizes(sizes: tuple[int, ...] | None, limits: GraphLimits, width: int) -> tuple[int, ...]:
    """Return numbers of requests; the user's sizes are tokens, of which only multiples of the width can be had."""
    in_requests = None if sizes is None else tuple(size // width for size in sizes if size % width == 0)
    return chosen_sizes(in_requests, limits.max_num_seqs)


def _full_keys(
    shapes: Iterable[tuple[int, int, int | None]],
    samplers: tuple[SamplerVariant | None, ...],
    limits: GraphLimits,
    key_ints: KeyIntsOf,
) -> set[GraphKey]:
    return {
        GraphKey(
            mode=GraphMode.FULL,
            num_tokens=num_tokens,
            num_reqs=num_reqs,
            query_len=query_len,
            sampler=sampler,
            key_ints=key_ints(num_reqs, query_len, context),
        )
        for num_tokens, num_reqs, query_len in shapes
        for sampler in samplers
        for context in context_lengths(limits.max_model_len)
    }


def _dispatch_order(key: GraphKey) -> tuple[int, int, bool, int, int, KeyInts, str, int]:
    """Full before piecewise; then the least padding, a uniform graph before one for any mix, the cheapest sampler."""
    sampler = len(SamplerVariant) if key.sampler is None else int(key.sampler)
    sizes = (-key.mode, key.num_tokens, key.query_len is None, key.num_reqs or 0)
    return *sizes, sampler, key.key_ints, key.stage, key.num_drafts
