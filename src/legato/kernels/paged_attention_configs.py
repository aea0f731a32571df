"""Tile sizes of the paged attention kernels, and how many parts a decode is split into. Pure; knows no Triton.

Everything here depends on the model's shape, the padded batch and the GPU alone, never on sequence lengths, so that a
graph captured with these numbers serves any lengths.
"""

from dataclasses import dataclass, replace
from functools import cache

from legato.kernels.paged_attention_measured import DECODES

MAX_HEAD_DIM = 256
MAX_ROWS = 128
"""Rows (query tokens × grouped heads) that the decode kernel takes at most."""
MAX_QUERY_LEN = 16
"""Query tokens per request that the decode kernel takes at most."""
MAX_SPLITS = 16
"""Joining more costs more than reading sooner gains, at 1,024 and at 4,096 tokens of one request on an H200."""
MIN_SHARE = 128
"""Keys of a part, at least: a short sequence has little to join."""

_LEAST_KEYS = 16
"""That matrix units take; each warp, where they have keys of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConfig:
    """One way to run a kernel."""

    block_m: int
    """Rows of a tile."""
    block_n: int
    """Keys of a tile."""
    num_warps: int
    num_stages: int
    at_once: bool = False
    """Whether a decode asks for lengths, blocks and queries together; else for each when the one before is there."""
    warps_apart: bool = False
    """Whether each warp of a decode has keys of its own, 16 of a tile at least; else they share them."""


_DECODE = {
    # (bytes of an element, padded head): (keys, warps, stages)
    (2, 64): (64, 4, 3),
    (2, 128): (64, 4, 3),
    (2, 256): (32, 4, 3),
    (4, 64): (32, 4, 3),
    (4, 128): (32, 8, 3),
    (4, 256): (16, 8, 3),
}
_VARLEN = {
    # (bytes of an element, padded head): (rows, keys, warps, stages)
    (2, 64): (128, 64, 4, 3),
    (2, 128): (128, 64, 8, 3),
    (2, 256): (128, 32, 8, 3),
    (4, 64): (32, 32, 8, 2),
    (4, 128): (16, 32, 8, 2),
    (4, 256): (16, 16, 8, 2),
}
_VARLEN_SHORT = {
    # the same, for batches whose requests have so few tokens that 16 rows hold them
    (2, 64): (16, 128, 4, 3),
    (2, 128): (16, 64, 4, 3),
    (2, 256): (16, 32, 4, 3),
    (4, 64): (16, 32, 4, 3),
    (4, 128): (16, 32, 8, 2),
    (4, 256): (16, 16, 8, 2),
}


def padded_power_of_2(number: int) -> int:
    """Return the smallest power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()


def padded_head(head_dim: int) -> int:
    """Return the width that kernels compute a head with: a power of two that matrix units take."""
    return max(16, padded_power_of_2(head_dim))


def decode_config(*, rows: int, head_dim: int, element_bytes: int) -> TileConfig:
    """Return the tiles of a decode with ``rows`` = query_len × group rows per key head."""
    block_n, num_warps, num_stages = _DECODE[element_bytes, max(64, padded_head(head_dim))]
    block_m = max(16, padded_power_of_2(rows))
    # Accumulators of many rows do not fit the registers of four warps.
    many = block_m * padded_head(head_dim) > 8192 or (element_bytes == 4 and block_m > 16)
    return TileConfig(
        block_m=block_m,
        block_n=block_n,
        num_warps=8 if many else num_warps,
        num_stages=num_stages,
    )


def varlen_config(*, max_query_len: int, group: int, head_dim: int, element_bytes: int) -> TileConfig:
    """Return the tiles for any mix of query lengths up to ``max_query_len``."""
    table = _VARLEN_SHORT if max_query_len * group <= 16 else _VARLEN
    block_m, block_n, num_warps, num_stages = table[element_bytes, max(64, padded_head(head_dim))]
    block_m = max(block_m, padded_power_of_2(group))
    return TileConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)


@cache
def fitted(config: TileConfig, *, head_dim: int, element_bytes: int, shared_memory: int) -> TileConfig:
    """Return ``config`` with as many stages, and keys, as ``shared_memory`` bytes hold with the rows of a tile."""
    row_bytes = padded_head(head_dim) * element_bytes
    while (2 * config.num_stages * config.block_n + config.block_m) * row_bytes > shared_memory:
        if config.num_stages > 1:
            config = replace(config, num_stages=config.num_stages - 1)
        elif config.block_n > _LEAST_KEYS * (config.num_warps if config.warps_apart else 1):
            config = replace(config, block_n=config.block_n // 2)
        else:
            break
    return config


def num_splits(*, num_pairs: int, max_context: int, multiprocessors: int) -> int:
    """Return into how many parts the keys of each (request, key head) pair are split at most.

    One program for each multiprocessor, and no more: on an H200, 8 requests of 256 tokens and 8 key heads take 8.1 µs
    in 2 parts and 9.7 in 4, of 4,096 tokens 43 µs and 39; 32 of 1,024 tokens take 37 µs uncut and 46 in 4 parts, and
    only where lengths differ, 64 to 4,094, is uncut slower, 91 µs against 82. ``max_context`` is the longest sequence
    that the block table can hold.
    """
    return max(1, min(MAX_SPLITS, multiprocessors // num_pairs, -(-max_context // MIN_SHARE)))


def decode_choice(
    *,
    query_len: int,
    group: int,
    head_dim: int,
    element_bytes: int,
    num_reqs: int,
    num_kv_heads: int,
    max_context: int,
    multiprocessors: int,
) -> tuple[TileConfig, int]:
    """Return the tiles and the splits of a decode, as measured where its shape has been, by the rules above elsewhere.

    Requests count rounded up to a power of two: padded to the size of a graph, a batch is added up in the same order as
    without, and gives the same bits.
    """
    rows = query_len * group
    num_pairs = padded_power_of_2(num_reqs) * num_kv_heads
    config = decode_config(rows=rows, head_dim=head_dim, element_bytes=element_bytes)
    splits = num_splits(num_pairs=num_pairs, max_context=max_context, multiprocessors=multiprocessors)
    measured = DECODES.get((padded_head(head_dim), padded_power_of_2(num_pairs)))
    if measured is None or element_bytes != 2 or config.block_m > 16:
        return config, splits
    block_n, num_warps, num_stages, splits, at_once, warps_apart = measured
    room = workspace_rows(multiprocessors=multiprocessors, group=group) // (num_pairs * rows)
    config = TileConfig(
        block_m=config.block_m,
        block_n=block_n,
        num_warps=num_warps,
        num_stages=num_stages,
        at_once=at_once,
        warps_apart=warps_apart,
    )
    return config, max(1, min(splits, room, -(-max_context // MIN_SHARE)))


def workspace_rows(*, multiprocessors: int, group: int) -> int:
    """Return how many partial results [head_dim] any split decode can leave at most: its programs' rows."""
    return multiprocessors * min(MAX_ROWS, MAX_QUERY_LEN * group)
