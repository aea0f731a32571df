"""Candidate tiles of the Triton varlen kernel, timed on every mixed row; ``decode_tuning.py`` has those of decodes."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from attention_batches import MIXED_ROWS, Batch, Case, cold_batches
from graph_timing import time_calls

from legato.kernels.paged_attention_configs import TileConfig


def run_tuning(device: torch.device) -> dict[str, list[dict[str, Any]]]:
    """Try candidates on every mixed row, printing the best."""
    tuned = {}
    for case in MIXED_ROWS:
        results = tuned[case.name] = tune_varlen(case, device)
        print(f"\ntune {case.name}")
        for result in results[:4]:
            ways = f"{result['block_m']}x{result['block_n']} w{result['num_warps']} s{result['num_stages']}"
            print(f"  {result.get('us', float('nan')):8.1f} us  {ways}")
        failed = sum("error" in result for result in results)
        print(f"  {len(results)} candidates, {failed} could not run", flush=True)
    return tuned


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
