"""Check the fused kernels against their references on a GPU, and time them; ``tune_kernels.py`` tunes the products.

    python benchmarks/fused_kernels.py [--checks] [--early-start] [--output FILE.json]

Every time is that of one launch inside a CUDA graph; products cycle through copies of their weights that together
exceed the L2 cache, as the layers of a model do. Exits with 1 if any result is wrong.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import argparse
import json
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from fused_kernel_checks import WIDTHS, Width, check_all, head_norm, heads_to_store
from product_checks import draw
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES, Launch, microseconds, tiling_checks, time_product

from legato.kernels import early_start_triton
from legato.kernels.argmax import argmax, argmax_reference
from legato.kernels.rms_norm import rms_norm, rms_norm_reference
from legato.kernels.rotary import rotate_and_store, rotate_and_store_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference

MANY_ROWS = 1 << 20


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


def print_report(small: list[dict], products: list[dict]) -> None:
    """Print times, and what the products of a whole step add up to."""
    print(f"\n{'operation':<22}{'model':<14}{'rows':>5}{'µs':>8}{'torch':>8}")
    for row in small:
        print(f"{row['operation']:<22}{row['model']:<14}{row['rows']:>5}{row['us']:>8.2f}{row['torch_us']:>8.2f}")
    print(f"\n{'product':<10}{'model':<20}{'rows':>5}{'µs':>9}{'TB/s':>6}{'torch µs':>10}  tiling")
    for row in products:
        tiling, us = row["tiling"], row["us"]
        ours = f"{us:>9.2f}{row['bytes'] / us / 1e6:>6.2f}" if tiling else f"{'-':>9}{'-':>6}"
        name = f"{row['product']:<10}{row['model']:<20}{row['key'][0]:>5}"
        print(f"{name}{ours}{row['torch_us']:>10.2f}  {tuple(tiling) if tiling else 'torch'}")
    print("\nall products of a step, ms: rows, as the tables have it, torch's")
    for model in PRODUCTS:
        for num_rows in ROW_CLASSES:
            those = [row for row in products if row["model"] == model and row["key"][0] == num_rows]
            ours = sum(row["times"] * (row["us"] or row["torch_us"]) for row in those)
            torch_alone = sum(row["times"] * row["torch_us"] for row in those)
            print(f"  {model:<20}{num_rows:>4}{ours / 1000:>9.3f}{torch_alone / 1000:>9.3f}")


def main() -> int:
    """Run everything; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", action="store_true", help="check, and time nothing")
    parser.add_argument("--early-start", action="store_true", help="let kernels start while the one before them ends")
    parser.add_argument("--output", type=Path, help="write everything measured to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.early_start:
        early_start_triton.MAX_ROWS = MANY_ROWS
    checks = check_all() + list(tiling_checks(PRODUCTS["smollm2-135m"]))
    print(f"{len(checks)} checks, {time.perf_counter() - started:.0f} s", flush=True)
    timed = () if options.checks else WIDTHS[:2]
    small = [row for width in timed for num_rows in (1, 8, 64, 256) for row in time_small(width, num_rows)]
    products: list[dict] = []
    for model, those in () if options.checks else PRODUCTS.items():
        for product in those:
            products += time_product(model, product)
            torch.cuda.empty_cache()
            print(f"{model} {product.name}, {time.perf_counter() - started:.0f} s", flush=True)
    wrong = [check for check in checks if not check["correct"]]
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
        options.output.write_text(json.dumps(report, indent=1, default=str) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
