"""Candidate tiles and splits of the Triton attention kernels, timed on every row. Owns the candidates."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from attention_batches import DECODE_ROWS, MIXED_ROWS, Batch, Case, cold_batches
from graph_timing import time_calls

from legato.device.facts import DeviceFacts
from legato.kernels.paged_attention_configs import (
    TileConfig,
    decode_config,
    num_splits,
    workspace_rows,
)

_MOST_PROGRAMS = 8
"""Programs per multiprocessor that candidates may lead to."""


def run_tuning(facts: DeviceFacts, device: torch.device) -> dict[str, list[dict[str, Any]]]:
    """Try candidates on every row, printing the best."""
    tuned = {}
    for case in DECODE_ROWS + MIXED_ROWS:
        results = tune_decode(case, facts, device) if case.uniform else tune_varlen(case, device)
        tuned[case.name] = results
        print(f"\ntune {case.name}")
        shown = [result for index, result in enumerate(results) if index < 4 or result.get("shipped")]
        for result in shown:
            ways = f"{result['block_m']}x{result['block_n']} w{result['num_warps']} s{result['num_stages']}"
            ways += f" splits {result['splits']}" if "splits" in result else ""
            print(
                f"  {result.get('us', float('nan')):8.1f} us  {ways}{'  <- shipped' if result.get('shipped') else ''}"
            )
        failed = sum("error" in result for result in results)
        print(f"  {len(results)} candidates, {failed} could not run", flush=True)
    return tuned


def decode_candidates(case: Case, facts: DeviceFacts) -> Iterator[tuple[TileConfig, int]]:
    """Yield (tiles, splits) to try for a decode row; the shipped choice first."""
    rows = case.requests[0][0] * case.num_heads // case.num_kv_heads
    shipped = decode_config(rows=rows, head_dim=case.head_dim, element_bytes=2)
    pairs = len(case.requests) * case.num_kv_heads
    splits = num_splits(num_pairs=pairs, max_context=8192, multiprocessors=facts.num_multiprocessors)
    yield shipped, splits
    shapes = [(32, 4, 3), (32, 4, 4), (32, 4, 6), (64, 4, 2), (64, 4, 3), (64, 4, 4), (64, 8, 3), (128, 4, 2)]
    shapes += [(128, 8, 2), (128, 8, 3), (32, 2, 4)]
    limit = _MOST_PROGRAMS * facts.num_multiprocessors // pairs
    counts = sorted({count for count in (1, 2, 3, 4, 6, 8, 12, 16, 22, 32, 48) if count == 1 or count <= limit})
    for block_n, num_warps, num_stages in shapes:
        config = replace(shipped, block_n=block_n, num_warps=num_warps, num_stages=num_stages)
        for count in counts[-6:]:
            yield config, count


def tune_decode(case: Case, facts: DeviceFacts, device: torch.device) -> list[dict[str, Any]]:
    """Return all candidates of a decode row, fastest first."""
    from legato.kernels.paged_attention_decode_triton import paged_attention_decode
    from legato.kernels.paged_attention_workspace import SplitWorkspace

    batches = cold_batches(case, device)
    workspace = SplitWorkspace(
        _MOST_PROGRAMS
        * workspace_rows(multiprocessors=facts.num_multiprocessors, group=case.num_heads // case.num_kv_heads),
        case.head_dim,
        device,
    )

    def call(batch: Batch, config: TileConfig, splits: int) -> None:
        paged_attention_decode(
            batch.query,
            batch.cache.key,
            batch.cache.value,
            batch.out,
            seq_lens=batch.metadata.seq_lens,
            block_table=batch.metadata.block_table,
            query_len=case.requests[0][0],
            scale=case.layer.scale,
            window=None,
            num_splits=splits,
            workspace=workspace,
            config=config,
        )

    results = []
    for index, (config, splits) in enumerate(decode_candidates(case, facts)):
        candidate = asdict(config) | {"splits": splits, "shipped": index == 0}
        results.append(candidate | timed([partial(call, batch, config, splits) for batch in batches]))
    return sorted(results, key=lambda result: result.get("us", float("inf")))


def tune_varlen(case: Case, device: torch.device) -> list[dict[str, Any]]:
    """Return all candidates of a mixed row, fastest first."""
    from legato.kernels.paged_attention_varlen_triton import paged_attention_varlen

    batches = cold_batches(case, device)[:8]

    def call(batch: Batch, config: TileConfig) -> None:
        paged_attention_varlen(
            batch.query,
            batch.cache.key,
            batch.cache.value,
            batch.out,
            query_start_loc=batch.metadata.query_start_loc,
            seq_lens=batch.metadata.seq_lens,
            block_table=batch.metadata.block_table,
            max_query_len=batch.metadata.max_query_len,
            scale=case.layer.scale,
            window=None,
            config=config,
        )

    results = []
    for block_m, block_n, num_warps, num_stages in (
        (128, 64, 8, 3), (128, 64, 4, 3), (128, 64, 8, 2), (128, 128, 8, 2), (128, 128, 8, 3), (64, 64, 4, 3),
        (64, 128, 4, 2), (64, 32, 4, 4), (128, 32, 8, 4),
    ):  # fmt: skip
        config = TileConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)
        results.append(asdict(config) | timed([partial(call, batch, config) for batch in batches]))
    return sorted(results, key=lambda result: result.get("us", float("inf")))


def timed(calls: list[Callable[[], None]]) -> dict[str, Any]:
    """Return the time, or the error of a candidate that cannot run."""
    try:
        return {"us": time_calls(calls)}
    except Exception as problem:  # reported: a candidate may not fit the GPU
        return {"error": f"{type(problem).__name__}: {problem}"[:120]}
