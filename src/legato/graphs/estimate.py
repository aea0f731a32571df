"""What all graphs of a catalog will take, from a few that were captured. Pure arithmetic over keys.

Graphs of one kind hold the same work at different sizes, so that bytes lie on a line over the number of tokens: its
ends, the smallest and the largest key of each kind, are captured.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant, Stage

Kind = tuple[Stage, GraphMode, int | None, SamplerVariant | None, int]


def kind_of(key: GraphKey) -> Kind:
    """Return what keys share that differ in size, and in the backend's integers, alone."""
    return key.stage, key.mode, key.query_len, key.sampler, key.num_drafts


def sample_keys(keys: Iterable[GraphKey]) -> list[GraphKey]:
    """Return the largest and the smallest key of each kind, in tokens; the largest of all first."""
    chosen: dict[GraphKey, None] = {}
    for members in _by_kind(keys).values():
        chosen[max(members, key=_size)] = None
        chosen[min(members, key=_size)] = None
    return sorted(chosen, key=_size, reverse=True)


def estimate_bytes(keys: Iterable[GraphKey], sampled: Mapping[GraphKey, int]) -> int:
    """Return the bytes of all ``keys`` together, given those of some; a kind of which none was captured has none."""
    measured = _by_kind(sampled)
    total = 0.0
    for kind, members in _by_kind(keys).items():
        if ends := measured.get(kind):
            small, large = min(ends, key=_size), max(ends, key=_size)
            slope = (sampled[large] - sampled[small]) / max(1, _size(large) - _size(small))
            total += sum(sampled[small] + slope * (_size(key) - _size(small)) for key in members)
    return max(0, round(total))


def _by_kind(keys: Iterable[GraphKey]) -> Mapping[Kind, list[GraphKey]]:
    kinds: defaultdict[Kind, list[GraphKey]] = defaultdict(list)
    for key in keys:
        kinds[kind_of(key)].append(key)
    return kinds


def _size(key: GraphKey) -> int:
    return key.num_tokens
