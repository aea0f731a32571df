"""Made-up batches for capture and canary. Owns their layout; only used while no request is in flight."""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from legato.device.host_memory import upload
from legato.flow.scheduled_batch import BlockAppend
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode
from legato.runner.buffers import FROM_STATE, StepBuffers
from legato.runner.device_state import DeviceState
from legato.runner.round_buffers import RoundBuffers
from legato.runner.step_shape import StepShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticBatch:
    """Requests with rows, lengths and blocks of their own, chosen by ``seed``."""

    rows: tuple[int, ...]
    query_lens: tuple[int, ...]
    computed: tuple[int, ...]
    """Tokens in the cache before the step."""
    blocks: tuple[tuple[int, ...], ...]
    token_ids: tuple[int, ...]
    """[num_tokens] ids of the step, the next inputs where decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticLimits:
    """What made-up batches may use."""

    max_num_seqs: int
    max_model_len: int
    num_blocks: int
    block_size: int
    vocab_size: int
    lookahead: int = 0
    """Tokens behind those of the step for which a request has blocks, as a drafter may write there."""


def make_batch(shape: StepShape, limits: SyntheticLimits, seed: int) -> SyntheticBatch:
    """Return requests that fit in ``shape``, with padding left over where it has room; even seeds make shorter ones."""
    random = np.random.default_rng(seed)
    most = shape.num_reqs if shape.query_len is not None else min(shape.num_reqs, shape.num_tokens)
    blocks_each = -(-((shape.query_len or 1) + limits.lookahead) // limits.block_size)
    num_reqs = max(1, min(most - 1 - seed % 2, (limits.num_blocks - 1) // blocks_each))
    capacity = min(limits.max_model_len, (limits.num_blocks - 1) // num_reqs * limits.block_size - limits.lookahead)
    query_lens = _query_lens(shape, num_reqs, capacity)
    rows = random.permutation(limits.max_num_seqs)[:num_reqs].tolist()
    longest = [min(capacity - query_len, 2 * limits.block_size) for query_len in query_lens]
    computed = [int(random.integers(0, max(1, most))) for most in longest]
    computed[0] = max(0, longest[0] - (seed + 1) % 2)  # shorter for even seeds: frozen at capture, it shows
    lengths = [  # in blocks
        -(-(sum(pair) + limits.lookahead) // limits.block_size) for pair in zip(computed, query_lens, strict=True)
    ]
    # No more are drawn than needed: a cache may have hundreds of thousands.
    free = iter((1 + random.choice(limits.num_blocks - 1, sum(lengths), replace=False)).tolist())
    blocks = [tuple(islice(free, length)) for length in lengths]
    return SyntheticBatch(
        rows=tuple(rows),
        query_lens=query_lens,
        computed=tuple(computed),
        blocks=tuple(blocks),
        token_ids=tuple(random.integers(0, limits.vocab_size, sum(query_lens)).tolist()),
    )


def own_shape_of(batch: SyntheticBatch, key: GraphKey, shape: StepShape) -> StepShape | None:
    """Return what attention between the segments of ``key`` is given of ``batch``; None: the graph holds attention.

    ``shape``: the key's, for which the batch was made. Single tokens are decodes, so that of the batches that a graph
    for any mix is made and proven with, some take the routine of each.
    """
    if key.mode is GraphMode.FULL:
        return None
    longest = max(batch.query_lens)
    return replace(
        shape,
        num_tokens=len(batch.token_ids),
        num_reqs=len(batch.rows),
        query_len=1 if longest == 1 else shape.query_len,
        max_query_len=longest,
    )


def _query_lens(shape: StepShape, num_reqs: int, capacity: int) -> tuple[int, ...]:
    """Return the width for each request, or for a mixed batch even shares that leave a token of padding."""
    if shape.query_len is not None:
        return (shape.query_len,) * num_reqs
    real = max(num_reqs, shape.num_tokens - 1)
    shares = [real // num_reqs + (index < real % num_reqs) for index in range(num_reqs)]
    return tuple(min(share, capacity) for share in shares)


def install(batch: SyntheticBatch, shape: StepShape, buffers: StepBuffers, state: DeviceState) -> None:
    """Write the batch into rows and input buffers, padding included."""
    state.admit(batch.rows, batch.computed)
    starts = np.cumsum([0, *batch.query_lens[:-1]])
    rows, first_tokens = upload(
        np.array([batch.rows, np.array(batch.token_ids)[starts]]), state.next_tokens.device
    ).unbind()
    state.next_tokens.index_copy_(0, rows, first_tokens)
    state.append_blocks(
        BlockAppend(row=row, start=0, block_ids=blocks) for row, blocks in zip(batch.rows, batch.blocks, strict=True)
    )
    buffers.rows.fill(batch.rows, shape.num_reqs)
    if shape.query_len == 1:
        return
    if isinstance(buffers, RoundBuffers):
        _install_drafts(batch, shape, buffers, state)
        return
    buffers.fill_tokens(
        batch.rows, batch.query_lens, batch.token_ids, num_reqs=shape.num_reqs, num_tokens=shape.num_tokens
    )


def verifying(batch: SyntheticBatch, *, uniform: bool, width: int) -> tuple[bool, ...]:
    """Return which requests verify drafts: all of a uniform batch, of others every second that is short enough.

    ``width``: tokens that a request may verify; 0: there is no drafter.
    """
    return tuple(uniform or (query_len <= width and index % 2 == 0) for index, query_len in enumerate(batch.query_lens))


def _install_drafts(batch: SyntheticBatch, shape: StepShape, buffers: RoundBuffers, state: DeviceState) -> None:
    """Let requests with few tokens verify drafts, every second one in a mixed batch, and the others end a prompt."""
    starts = np.concatenate([[0], np.cumsum(batch.query_lens)])
    decodes = verifying(batch, uniform=shape.query_len is not None, width=buffers.sampled.shape[1])
    token_ids = list(batch.token_ids)
    cells: list[tuple[int, int, int]] = []  # row, place of the draft, token
    for row, start, query_len, decode in zip(batch.rows, starts.tolist(), batch.query_lens, decodes, strict=False):
        if decode:
            cells += [(row, place, token_ids[start + 1 + place]) for place in range(query_len - 1)]
            token_ids[start : start + query_len] = [FROM_STATE] * query_len
    if cells:
        rows, places, drafted = upload(np.array(cells), state.drafts.device).unbind(1)
        state.drafts.index_put_((rows, places), drafted)
    drafts = tuple(length - 1 if decode else 0 for length, decode in zip(batch.query_lens, decodes, strict=True))
    first = tuple(0 if decode else length - 1 for length, decode in zip(batch.query_lens, decodes, strict=True))
    buffers.num_drafts.fill(drafts, shape.num_reqs)
    buffers.first_sampled.fill(first, shape.num_reqs)
    buffers.given_next.fill((FROM_STATE,) * len(batch.rows), shape.num_reqs)
    buffers.fill_tokens(batch.rows, batch.query_lens, token_ids, num_reqs=shape.num_reqs, num_tokens=shape.num_tokens)
