"""Attention backends on one GPU: checked against a float32 oracle, timed inside CUDA graphs, tuned.

    PYTHONPATH=src python benchmarks/attention_kernels.py --backends auto --tune --output attention.json

Checks: every backend's ``forward`` on scattered blocks; what no sequence has written is not a number. A relative error
‖out - oracle‖ / ‖oracle‖ above the dtype's bound makes the exit status 1.

Times: attention alone (``fused_kernels.py`` times the cache write), random data, one CUDA graph of as many calls as
there are caches. The caches are distinct, at least 256 MiB together where 64 of them reach that, so that no call finds
its keys in the L2 cache; the median of the replays is divided by the calls.
"""

import argparse
import json
import platform
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attention_batches import DECODE_ROWS, MIXED_ROWS, Batch, Case, check_cases, cold_batches, draw
from attention_tuning import run_tuning
from graph_timing import time_calls

from legato.attention.graph_support import GraphSupport
from legato.attention.protocol import AttentionBackend
from legato.attention.registry import backends_named, load_backend
from legato.device.facts import DeviceFacts
from legato.device.registry import open_device
from legato.errors import BackendError
from legato.kernels.paged_attention import paged_attention_reference

BOUNDS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


def build(name: str, case: Case, facts: DeviceFacts) -> AttentionBackend | str:
    """Return the backend for a case, or why it cannot serve it."""
    backend, setup = load_backend(name), case.setup(facts)
    try:
        backend.support(setup, case.spec)
    except BackendError as error:
        return "; ".join(f"{label}: {text}" for label, text in error.details.items())
    return backend(setup)


def forward(backend: AttentionBackend, batch: Batch) -> None:
    """Run one layer."""
    backend.forward(batch.case.layer, batch.query, batch.cache, batch.metadata, batch.out)


def check(name: str, case: Case, facts: DeviceFacts, device: torch.device) -> dict[str, Any]:
    """Return the relative error of a backend on one case."""
    result: dict[str, Any] = {"backend": name, "case": case.name}
    torch.manual_seed(0)
    try:
        backend = build(name, case, facts)
        if isinstance(backend, str):
            return result | {"refused": backend}
        batch = draw(case, device)
        forward(backend, batch)
        expected = paged_attention_reference(
            batch.query,
            batch.cache.key,
            batch.cache.value,
            query_start_loc=batch.metadata.query_start_loc,
            seq_lens=batch.metadata.seq_lens,
            block_table=batch.metadata.block_table,
            scale=case.layer.scale,
            window=case.window,
        )
        error = ((batch.out.float() - expected).norm() / expected.norm()).item()
    except Exception as problem:  # reported and counted: one failing case must not hide the others
        return result | {"ok": False, "error": f"{type(problem).__name__}: {problem}"[:300]}
    return result | {"ok": error < BOUNDS[case.dtype], "relative_error": error}


def needed_level(case: Case) -> GraphSupport:
    """Return the level that a backend must declare for a graph to hold such a batch."""
    if not case.uniform:
        return GraphSupport.ALWAYS
    return GraphSupport.UNIFORM_SINGLE_TOKEN if case.requests[0][0] == 1 else GraphSupport.UNIFORM


def time_backend(name: str, case: Case, batches: list[Batch], facts: DeviceFacts) -> float | str:
    """Return microseconds of one attention call, or why there is none."""
    try:
        backend = build(name, case, facts)
        if isinstance(backend, str):
            return backend
        support = backend.support(case.setup(facts), case.spec)
        if support.level < needed_level(case):
            return f"{support.level.name}: not in a graph"
        return time_calls([partial(forward, backend, batch) for batch in batches])
    except Exception as problem:  # reported in the table: one failing backend must not hide the others
        return f"{type(problem).__name__}: {problem}"[:300]


def environment(facts: DeviceFacts) -> dict[str, Any]:
    """Return what the numbers depend on."""
    import triton

    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    return {"device": str(facts), "multiprocessors": facts.num_multiprocessors, "command": sys.argv} | versions


def run_checks(names: list[str], facts: DeviceFacts, device: torch.device, chosen: re.Pattern[str]) -> list[Any]:
    """Check every backend on every chosen case, printing as it goes."""
    results = []
    for name in names:
        for case in filter(lambda case: chosen.search(case.name), check_cases()):
            result = check(name, case, facts, device)
            results.append(result)
            verdict = "refused" if "refused" in result else "ok" if result["ok"] else "FAILED"
            detail = result.get("refused") or result.get("error") or f"{result['relative_error']:.1e}"
            print(f"check {name:11} {case.name:45} {verdict:7} {detail}", flush=True)
    return results


def run_times(names: list[str], facts: DeviceFacts, device: torch.device) -> list[dict[str, Any]]:
    """Time every backend on every row."""
    rows = []
    for case in DECODE_ROWS + MIXED_ROWS:
        batches = cold_batches(case, device)
        for name in names:
            found = time_backend(name, case, batches, facts)
            row: dict[str, Any] = {"row": case.name, "backend": name, "calls": len(batches)}
            if isinstance(found, str):
                rows.append(row | {"refused": found})
                continue
            rates = {"tb_per_s": case.kv_bytes / found / 1e6, "tflop_per_s": case.flops / found / 1e6}
            rows.append(row | {"us": found} | rates)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print microseconds and rates, a line per row and backend."""
    print(f"\n{'row':45} {'backend':11} {'us':>8} {'TB/s':>6} {'TFLOP/s':>8}")
    for row in rows:
        if "refused" in row:
            print(f"{row['row']:45} {row['backend']:11} {row['refused'][:60]}")
            continue
        rates = f"{row['tb_per_s']:6.2f} {row['tflop_per_s']:8.1f}" if "tb_per_s" in row else ""
        print(f"{row['row']:45} {row['backend']:11} {row['us']:8.1f} {rates}")


def save(path: Path | None, results: dict[str, Any]) -> None:
    """Write all results so far, where a path was given."""
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="triton", help="names, separated by commas")
    parser.add_argument("--tune", action="store_true", help="try candidate tiles of the Triton varlen kernel")
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--checks", type=re.compile, default=re.compile(""), help="names of cases, as an expression")
    parser.add_argument("--output", type=Path, help="JSON file for all results")
    arguments = parser.parse_args()
    names = [name for given in arguments.backends.split(",") for name in backends_named(given)]
    device = torch.device("cuda")
    facts = open_device("cuda").facts
    results: dict[str, Any] = {"environment": environment(facts)}
    with torch.inference_mode():
        results["checks"] = [] if arguments.skip_checks else run_checks(names, facts, device, arguments.checks)
        results["rows"] = run_times(names, facts, device)
        save(arguments.output, results)  # tuning takes minutes: what is known by now is kept
        if arguments.tune:
            results["tuning"] = run_tuning(device)
            save(arguments.output, results)
    print_table(results["rows"])
    failed = [check for check in results["checks"] if not check.get("ok", True)]
    print(f"\n{len(results['checks'])} checks, {len(failed)} failed", *(f"{c['backend']}: {c['case']}" for c in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
