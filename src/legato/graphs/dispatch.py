"""The graph of a batch: the smallest captured key that serves it, or why there is none. Pure."""

from dataclasses import replace

from legato.graphs.catalog import Catalog
from legato.graphs.key import BatchShape, Dispatched
from legato.graphs.modes import GraphMode, Stage
from legato.observability.reasons import Reason


def dispatch(catalog: Catalog, shape: BatchShape) -> Dispatched:
    """Return the first key, in the catalog's order, that serves ``shape``; eager where none does."""
    if shape.query_len is None:
        return _find(catalog, shape)
    found = catalog.dispatched.get(shape)
    if found is None:
        found = catalog.dispatched[shape] = _find(catalog, shape)
    return found


def _find(catalog: Catalog, shape: BatchShape) -> Dispatched:
    policy = catalog.policy
    requested = policy.requested_mode(shape.query_len, shape.stage)
    given = policy.given_mode(shape.query_len, shape.stage)
    key = next((key for key in catalog.keys if key.mode <= given and key.serves(shape)), None)
    mode = key.mode if key is not None else GraphMode.EAGER
    return Dispatched(requested=requested, mode=mode, key=key, reason=_reason(catalog, shape, requested, given, mode))


def _reason(
    catalog: Catalog, shape: BatchShape, requested: GraphMode, given: GraphMode, mode: GraphMode
) -> Reason | None:
    """Return why ``mode`` is not FULL. What the user can change comes before what the batch happens to be."""
    if mode is GraphMode.FULL:
        return None
    if shape.stage is not Stage.DRAFT and shape.query_len not in (None, *catalog.policy.uniform):
        return Reason.WIDTH_MISMATCH
    if mode is given:
        return Reason.BACKEND_LEVEL if given < requested else Reason.DISABLED_BY_USER
    if shape.needs_hidden_states and given is GraphMode.FULL:
        return Reason.FEATURE_INCOMPATIBLE
    for key, reason in catalog.dropped.items():
        if key.mode is given and key.serves(shape):
            return reason
    same_mode = [key for key in catalog.keys if key.mode is given]
    if any(key.serves(replace(shape, key_ints=key.key_ints)) for key in same_mode):
        return Reason.BACKEND_DECLINED
    return Reason.BATCH_TOO_LARGE
