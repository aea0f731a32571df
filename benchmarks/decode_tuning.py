"""Tiles and splits of decodes: every candidate checked and timed on a GPU. Owns the candidates and the choice."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from attention_batches import Batch, Case, cold_batches, draw, uniform
from graph_timing import time_calls
from tuned_tables import Decode, DecodeKey

from legato.device.facts import DeviceFacts
from legato.kernels.paged_attention import paged_attention_reference
from legato.kernels.paged_attention_configs import (
    MAX_SPLITS,
    TileConfig,
    decode_choice,
    padded_head,
    padded_power_of_2,
)
from legato.kernels.paged_attention_decode_triton import paged_attention_decode
from legato.kernels.paged_attention_workspace import SplitWorkspace
from legato.kvcache.storage import LayerCache

TILES = (
    (32, 1, 4), (32, 2, 4), (32, 4, 3), (64, 2, 3), (64, 2, 5), (64, 4, 2), (64, 4, 3), (64, 4, 4), (64, 4, 5),
    (64, 4, 7), (128, 4, 2), (128, 4, 3), (128, 8, 2), (128, 8, 3),
)  # fmt: skip
"""(keys, warps, stages)"""
MOST_PROGRAMS = 8
"""Programs per multiprocessor that splits may lead to."""
FIRST_CONTEXT = 1024
"""That every candidate is timed at: what servers see."""
FINALISTS = 5
"""Candidates that are timed at the other contexts too."""
WORTH = 1.02
"""A decode is exchanged for one that is this much faster: less is noise."""
UNEVEN = (1, 17, 383, 700, 1025)
"""Lengths that candidates are checked at."""
MOST_TOKENS = 16
"""Rows of a tile: query tokens of all heads of a key head."""
BOUND = 1e-2
"""Of the relative error in bfloat16."""


class Heads(NamedTuple):
    """What decodes of a model look like."""

    model: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]

    def case(self, batch: int, context: int) -> Case:
        """Return the decode of one token for each of ``batch`` requests."""
        heads = {"num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads, "head_dim": self.head_dim}
        return uniform(batch, context, 1, **heads)

    def key(self, batch: int) -> tuple[int, int]:
        """Return where the table has it."""
        return padded_head(self.head_dim), padded_power_of_2(batch * self.num_kv_heads)


MODELS = (
    Heads("smollm2-135m", 9, 3, 64, (1, 8, 32, 64), (192, 384, 1024)),
    Heads("llama-3.1-8b", 32, 8, 128, (1, 8, 16, 32, 64, 256), (192, 384, 1024, 4096)),
)


def chosen_models(names: Collection[str], batches: Sequence[int]) -> tuple[Heads, ...]:
    """Return the models of these names, with ``batches`` where there are any, else with their own."""
    those = [heads for heads in MODELS if heads.model in names]
    return tuple(heads._replace(batches=tuple(batches)) if batches else heads for heads in those)


def decode_candidates(heads: Heads, batch: int, multiprocessors: int) -> list[Decode]:
    """Return what to try: all tiles that fit, in few parts and in as many as fill the multiprocessors once or twice."""
    pairs = batch * heads.num_kv_heads
    most, fills = max(1, min(MAX_SPLITS, MOST_PROGRAMS * multiprocessors // pairs)), multiprocessors // pairs
    splits = sorted({min(most, count) for count in (1, 2, 3, 4, max(1, fills), max(1, 2 * fills))})
    tiles = [one for one in TILES if heads.head_dim <= 64 or one[0] * one[2] <= 320]
    return [
        (*tile, count, True, apart)
        for tile in tiles
        for count in splits
        for apart in (False, True)
        if not apart or (tile[1] > 1 and tile[0] // tile[1] >= 16)
    ]


def present_choice(heads: Heads, batch: int, context: int, multiprocessors: int) -> Decode:
    """Return what the product takes now."""
    config, splits = decode_choice(
        query_len=1,
        group=heads.num_heads // heads.num_kv_heads,
        head_dim=heads.head_dim,
        element_bytes=2,
        num_reqs=batch,
        num_kv_heads=heads.num_kv_heads,
        max_context=max(8192, context),
        multiprocessors=multiprocessors,
    )
    return config.block_n, config.num_warps, config.num_stages, splits, config.at_once, config.warps_apart


def run(batch: Batch, workspace: SplitWorkspace, decode: Decode) -> None:
    """Launch one decode."""
    block_n, num_warps, num_stages, splits, at_once, warps_apart = decode
    config = TileConfig(
        block_m=16,
        block_n=block_n,
        num_warps=num_warps,
        num_stages=num_stages,
        at_once=at_once,
        warps_apart=warps_apart,
    )
    paged_attention_decode(
        batch.query,
        batch.cache.key,
        batch.cache.value,
        batch.out,
        seq_lens=batch.metadata.seq_lens,
        block_table=batch.metadata.block_table,
        query_len=batch.metadata.query_len or 1,
        scale=batch.case.layer.scale,
        window=None,
        num_splits=splits,
        workspace=workspace,
        config=config,
    )


def workspace_for(heads: Heads, device: torch.device) -> SplitWorkspace:
    """Return room for the most splits of the largest batch."""
    return SplitWorkspace(max(heads.batches) * heads.num_heads * MAX_SPLITS, heads.head_dim, device)


def compilations(models: Sequence[Heads], multiprocessors: int) -> Iterator[Callable[[], object]]:
    """Yield what compiles each kernel that tuning launches."""
    for heads in models:
        kernels = {
            (batch == 1, *tile, min(splits, 2), at_once, apart)
            for batch in heads.batches
            for *tile, splits, at_once, apart in decode_candidates(heads, batch, multiprocessors)
        }
        yield from (partial(compilation, heads, single, tuple(decode)) for single, *decode in sorted(kernels))


def compilations_of(table: Mapping[DecodeKey, Decode], multiprocessors: int) -> Iterator[Callable[[], object]]:
    """Yield what compiles the decodes of steps, as they are now and as ``table`` has them."""
    for heads in MODELS:
        for batch in heads.batches:
            present = present_choice(heads, batch, FIRST_CONTEXT, multiprocessors)
            for decode in {present, table.get(heads.key(batch), present)}:
                yield partial(compilation, heads, batch == 1, decode)


def compilation(heads: Heads, single: bool, decode: Decode) -> None:
    """Launch a decode over tensors without memory: for a process that compiles what it launches."""
    meta = torch.device("meta")
    batch = draw(heads.case(1 if single else 2, 32), torch.device("cpu"))
    on_meta = partial(torch.Tensor.to, device=meta)
    query, key, value, out = map(on_meta, (batch.query, batch.cache.key, batch.cache.value, batch.out))
    lens, table = map(on_meta, (batch.metadata.seq_lens, batch.metadata.block_table))
    cache, metadata = LayerCache(key=key, value=value), replace(batch.metadata, seq_lens=lens, block_table=table)
    on_meta_alone = replace(batch, query=query, cache=cache, metadata=metadata, out=out)
    run(on_meta_alone, SplitWorkspace(2 * MAX_SPLITS * heads.num_heads, heads.head_dim, meta), decode)


def check(heads: Heads, decodes: Sequence[Decode], device: torch.device) -> Iterator[tuple[Decode, float]]:
    """Yield each decode with its relative error on uneven lengths, the second time; infinite if it cannot run.

    With one token for each request, and with as many as the table's decodes are made for.
    """
    sizes = {"num_heads": heads.num_heads, "num_kv_heads": heads.num_kv_heads, "head_dim": heads.head_dim}
    workspace = workspace_for(heads._replace(batches=(MOST_TOKENS * len(UNEVEN),)), device)
    batches = []
    for width in (1, MOST_TOKENS * heads.num_kv_heads // heads.num_heads):
        requests = tuple((width, max(width, length)) for length in UNEVEN)
        batch = draw(Case(name="uneven", requests=requests, uniform=True, **sizes), device)
        batches.append((batch, oracle(batch)))
    for decode in decodes:
        try:
            errors = [relative_error(batch, expected, workspace, decode) for batch, expected in batches]
        except Exception as problem:  # reported: a candidate may not fit the GPU
            print(f"  {heads.model} {decode}: {type(problem).__name__}: {problem}"[:200], flush=True)
            errors = [math.inf]
        yield decode, max(math.inf if math.isnan(error) else error for error in errors)


def oracle(batch: Batch) -> torch.Tensor:
    """Return the attention of ``batch`` in float32."""
    return paged_attention_reference(
        batch.query,
        batch.cache.key,
        batch.cache.value,
        query_start_loc=batch.metadata.query_start_loc,
        seq_lens=batch.metadata.seq_lens,
        block_table=batch.metadata.block_table,
        scale=batch.case.layer.scale,
        window=None,
    )


def relative_error(batch: Batch, expected: torch.Tensor, workspace: SplitWorkspace, decode: Decode) -> float:
    """Return that of what is left by the second of two launches."""
    for _ in range(2):
        batch.out.fill_(float("nan"))
        run(batch, workspace, decode)
    return ((batch.out.float() - expected).norm() / expected.norm()).item()


def choose(times: Mapping[Decode, Mapping[int, float]], present: Decode) -> Decode | None:
    """Return the one that is fastest over all contexts, at none slower than ``present``; None: none is worth it.

    ``times``: microseconds by context. The mean is that of the logarithms.
    """

    def gain(decode: Decode) -> float:
        ratios = [times[present][context] / us for context, us in times[decode].items()]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 1 / WORTH else 0.0

    complete = [decode for decode, by_context in times.items() if by_context.keys() == times[present].keys()]
    best = max(complete, key=gain)
    return best if gain(best) > WORTH else None


def tune_decodes(models: Sequence[Heads], facts: DeviceFacts, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield a row for each model and batch: times, choice and errors."""
    for heads in models:
        workspace = workspace_for(heads, device)
        errors: dict[Decode, float] = {}
        for batch in heads.batches:
            present = present_choice(heads, batch, FIRST_CONTEXT, facts.num_multiprocessors)
            tried = list(dict.fromkeys([present, *decode_candidates(heads, batch, facts.num_multiprocessors)]))
            errors |= dict(check(heads, [decode for decode in tried if decode not in errors], device))
            tried = [decode for decode in tried if errors[decode] < BOUND]
            times: dict[Decode, dict[int, float]] = {decode: {} for decode in tried}
            for context in (FIRST_CONTEXT, *(one for one in heads.contexts if one != FIRST_CONTEXT)):
                copies = cold_batches(heads.case(batch, context), device)
                for decode in tried:
                    times[decode][context] = time_calls([partial(run, copy, workspace, decode) for copy in copies])
                finalists = sorted(tried, key=lambda decode: times[decode][FIRST_CONTEXT])[:FINALISTS]
                tried = list(dict.fromkeys([present, *finalists]))
                del copies
            chosen = choose(times, present)
            yield {
                "model": heads.model,
                "batch": batch,
                "key": heads.key(batch),
                "present": present,
                "chosen": chosen,
                "present_us": times[present],
                "us": times[chosen or present],
                "wrong": [decode for decode, error in errors.items() if BOUND <= error < math.inf],
                "tried": [(*decode, by_context) for decode, by_context in times.items()],
            }
