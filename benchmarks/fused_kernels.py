"""Check the fused kernels against their references on a GPU, time them, and tune the few-row products.

    python benchmarks/fused_kernels.py [--tune] [--checks] [--early-start] [--output FILE.json]

Every time is that of one launch inside a CUDA graph; products cycle through copies of their weights that together
exceed the L2 cache, as the layers of a model do. Exits with 1 if any result is wrong.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from fused_kernel_checks import WIDTHS, Width, check_all, head_norm, heads_to_store
from product_checks import PRODUCTS, draw
from product_tuning import Launch, compile_ahead, microseconds, start_early, tiling_checks, time_products

from legato.kernels.argmax import argmax, argmax_reference
from legato.kernels.rms_norm import rms_norm, rms_norm_reference
from legato.kernels.rotary import rotate_and_store, rotate_and_store_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference

ROW_CLASSES = (1, 2, 4, 8, 16, 32, 64)


def time_small(width: Width, num_rows: int) -> Iterator[dict[str, object]]:
    """Time each small operation and its reference."""
    dtype = torch.bfloat16
    hidden, weight = draw(num_rows, width.hidden, dtype=dtype), draw(width.hidden, dtype=dtype)
    gate_up = draw(num_rows, 2 * width.inner, dtype=dtype)
    turned, normalised = (heads_to_store(width, num_rows, dtype, norm) for norm in (None, head_norm(width, dtype)))
    logits = draw(num_rows, PRODUCTS[width.name][-1].out_size, dtype=dtype)
    pairs: dict[str, tuple[Launch, Launch]] = {
        "rms_norm": (lambda: rms_norm(hidden, weight, 1e-5), lambda: rms_norm_reference(hidden, weight, 1e-5)),
        "rotate_and_store": (lambda: rotate_and_store(*turned), lambda: rotate_and_store_reference(*turned)),
        "  normalised": (lambda: rotate_and_store(*normalised), lambda: rotate_and_store_reference(*normalised)),
        "silu_mul": (lambda: silu_mul(gate_up), lambda: silu_mul_reference(gate_up)),
        "argmax": (lambda: argmax(logits), lambda: argmax_reference(logits)),
    }
    for name, (ours, theirs) in pairs.items():
        yield {
            "operation": name,
            "model": width.name,
            "rows": num_rows,
            "us": microseconds([ours] * 64),
            "torch_us": microseconds([theirs] * 64),
        }


def print_tables(rows: Iterable[dict]) -> None:
    """Print what to paste into ``linear_tilings.py``: only what is faster than torch."""
    rows = list(rows)
    for table in ("TILINGS", "NORM_TILINGS", "GATED_TILINGS"):
        print(f"\n{table}: dict[tuple[int, int, int], Tiling] = {{")
        for row in rows:
            if row["table"] == table and row["best"] and row["check"]["correct"] and row["best_us"] < row["torch_us"]:
                *values, block_rows, splits = row["best"]
                named = [f"block_rows={block_rows}"] * (block_rows != 16) + [f"splits={splits}"] * (splits != 1)
                print(f"    {row['key']}: Tiling({', '.join([*map(str, values), *named])}),")
        print("}")


def print_report(small: list[dict], products: list[dict]) -> None:
    """Print times, and what the products of a whole step add up to."""
    print(f"\n{'operation':<22}{'model':<14}{'rows':>5}{'µs':>8}{'torch':>8}")
    for row in small:
        print(f"{row['operation']:<22}{row['model']:<14}{row['rows']:>5}{row['us']:>8.2f}{row['torch_us']:>8.2f}")
    print(f"\n{'product':<10}{'model':<14}{'rows':>5}{'table µs':>10}{'best µs':>9}{'TB/s':>6}{'torch µs':>10}  tiling")
    for row in products:
        best, us = row["best"], row["best_us"]
        ours = f"{us:>9.2f}{row['bytes'] / us / 1e6:>6.2f}" if best else f"{'-':>9}{'-':>6}"
        table = "-" if row["table_us"] is None else f"{row['table_us']:.2f}"
        name = f"{row['product']:<10}{row['model']:<14}{row['key'][0]:>5}"
        print(f"{name}{table:>10}{ours}{row['torch_us']:>10.2f}  {tuple(best) if best else 'torch'}")
    print("\nall products of a step, ms: rows, with the best of each, torch's")
    for model in PRODUCTS:
        for num_rows in ROW_CLASSES:
            those = [row for row in products if row["model"] == model and row["key"][0] == num_rows]
            if len(those) < len(PRODUCTS[model]) - 1:  # a head alone is left to torch
                continue
            fastest = sum(row["times"] * min(row["best_us"] or math.inf, row["torch_us"]) for row in those)
            torch_alone = sum(row["times"] * row["torch_us"] for row in those)
            print(f"  {model:<14}{num_rows:>4}{fastest / 1000:>9.3f}{torch_alone / 1000:>9.3f}")


def main() -> int:
    """Run everything; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="try tilings for the few-row products and print the best")
    parser.add_argument("--checks", action="store_true", help="check, and time nothing")
    parser.add_argument("--early-start", action="store_true", help="let kernels start while the one before them ends")
    parser.add_argument("--output", type=Path, help="write everything measured to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    start_early(options.early_start)
    if options.tune:
        compile_ahead([product for those in PRODUCTS.values() for product in those])
        print(f"compiled, {time.perf_counter() - started:.0f} s", flush=True)
    checks = check_all() + list(tiling_checks(PRODUCTS["smollm2-135m"]))
    print(f"{len(checks)} checks, {time.perf_counter() - started:.0f} s", flush=True)
    timed = () if options.checks else WIDTHS[:2]
    small = [row for width in timed for num_rows in (1, 8, 64, 256) for row in time_small(width, num_rows)]
    products: list[dict] = []
    for model, those in () if options.checks else PRODUCTS.items():
        for product in those:
            products += time_products(model, product, tuning=options.tune)
            torch.cuda.empty_cache()
            print(f"{model} {product.name}, {time.perf_counter() - started:.0f} s", flush=True)
    checks += [row["check"] for row in products if row["check"]]
    wrong = [check for check in checks if not check["correct"]]
    if options.tune:
        print_tables(products)
    if not options.checks:
        print_report(small, products)
    print(f"\n{len(checks)} checks, {len(wrong)} wrong, {time.perf_counter() - started:.0f} s")
    if options.output:
        environment = {name: version(name) for name in ("torch", "triton")} | {
            "device": torch.cuda.get_device_name(),
            "python": sys.version.split()[0],
        }
        report = {
            "command": " ".join(sys.argv),
            "environment": environment,
            "seconds": time.perf_counter() - started,
            "checks": {"run": len(checks), "wrong": wrong},
            "operations": small,
            "products": products,
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
