"""Check the fused kernels against their references on a GPU, time them, and tune the few-row products.

    python benchmarks/fused_kernels.py [--tune] [--output FILE.json]

Every time is that of one launch inside a CUDA graph; products cycle through copies of their weights that together
exceed the L2 cache, as the layers of a model do. Exits with 1 if any result is wrong.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

import torch
from fused_kernel_checks import (
    DEVICE,
    PRODUCTS,
    WIDTHS,
    Product,
    Width,
    angles,
    check_all,
    draw,
    verdict,
)
from triton.runtime.errors import OutOfResources

from legato.kernels import linear_triton
from legato.kernels.linear_tilings import Tiling, row_class
from legato.kernels.rms_norm import add_rms_norm, add_rms_norm_reference, rms_norm, rms_norm_reference
from legato.kernels.rotary import normalise_and_rotate, normalise_and_rotate_reference, rotate, rotate_reference
from legato.kernels.silu_mul import silu_mul, silu_mul_reference

ROW_CLASSES = (1, 2, 4, 8, 16)
BEYOND_L2_BYTES = 256 << 20
MIN_LAUNCHES = 16
COMPILING_THREADS = min(16, os.cpu_count() or 1)
Launch = Callable[[], object]


ONE_ROW_TILINGS = [
    Tiling(*values)
    for values in (
        (1, 1024, 4, 1), (2, 1024, 4, 1), (4, 1024, 4, 1), (8, 1024, 4, 1), (2, 1024, 2, 1), (4, 512, 2, 1),
        (8, 512, 2, 1), (4, 512, 4, 1), (8, 512, 4, 1), (16, 512, 4, 1), (8, 256, 1, 1), (1, 2048, 4, 1),
        (2, 2048, 8, 1), (4, 2048, 8, 1), (1, 4096, 4, 1), (1, 4096, 8, 1), (2, 4096, 8, 1), (4, 1024, 4, 3),
        (8, 512, 4, 3), (8, 512, 4, 5), (16, 256, 4, 5),
    )
]  # fmt: skip
FEW_ROWS_TILINGS = [
    Tiling(*values)
    for values in (
        (16, 256, 2, 4), (16, 256, 4, 4), (16, 256, 4, 6), (16, 512, 4, 3), (16, 512, 4, 4), (16, 512, 8, 4),
        (32, 128, 4, 5), (32, 256, 4, 3), (32, 256, 4, 4), (32, 256, 8, 4), (64, 64, 4, 6), (64, 128, 4, 3),
        (64, 128, 4, 5), (64, 256, 8, 3), (128, 64, 4, 4), (128, 128, 8, 3),
    )
]  # fmt: skip


def capture(launches: Sequence[Launch]) -> tuple[torch.cuda.CUDAGraph, object]:
    """Return a graph of all launches, and what the last of them returned."""
    launches[0]()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [launch() for launch in launches]
    return graph, results[-1]


def microseconds(launches: Sequence[Launch], *, replays: int = 6, repeats: int = 3) -> float:
    """Return the time of one launch: the best of ``repeats`` runs of ``replays`` replays of all of them in a graph."""
    launches = list(islice(cycle(launches), max(MIN_LAUNCHES, len(launches))))
    graph, _ = capture(launches)
    graph.replay()
    best = math.inf
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1000 / (replays * len(launches)))
    return best


def time_small(width: Width, num_rows: int) -> Iterator[dict[str, object]]:
    """Time each small operation and its reference."""
    dtype = torch.bfloat16
    hidden, delta, weight = (
        draw(num_rows, width.hidden, dtype=dtype),
        draw(num_rows, width.hidden, dtype=dtype) * 1e-3,
        draw(width.hidden, dtype=dtype),
    )
    gate_up = draw(num_rows, 2 * width.inner, dtype=dtype)
    counts = (width.num_heads, width.num_kv_heads)
    heads = draw(num_rows, sum(counts) + counts[1], width.head_dim, dtype=dtype)[:, : sum(counts)]
    cos, sin = angles(num_rows, width.head_dim, dtype)
    scales = draw(width.head_dim, dtype=dtype), draw(width.head_dim, dtype=dtype)
    pairs: dict[str, tuple[Launch, Launch]] = {
        "rms_norm": (lambda: rms_norm(hidden, weight, 1e-5), lambda: rms_norm_reference(hidden, weight, 1e-5)),
        "add_rms_norm": (
            lambda: add_rms_norm(hidden, delta, weight, 1e-5),
            lambda: add_rms_norm_reference(hidden, delta, weight, 1e-5),
        ),
        "rotate": (lambda: rotate(heads, cos, sin), lambda: rotate_reference(heads, cos, sin)),
        "normalise_and_rotate": (
            lambda: normalise_and_rotate(heads, counts, *scales, 1e-6, cos, sin),
            lambda: normalise_and_rotate_reference(heads, counts, *scales, 1e-6, cos, sin),
        ),
        "silu_mul": (lambda: silu_mul(gate_up), lambda: silu_mul_reference(gate_up)),
    }
    for name, (ours, theirs) in pairs.items():
        yield {
            "operation": name,
            "model": width.name,
            "rows": num_rows,
            "us": microseconds([ours] * 64),
            "torch_us": microseconds([theirs] * 64),
        }


class Bench:
    """Copies of a product's weights, and the launches over them."""

    def __init__(self, product: Product) -> None:
        self.product = product
        copies = max(1, math.ceil(BEYOND_L2_BYTES / product.num_bytes))
        scale = product.in_size**-0.5
        self.weights = [draw(*product.weight_shape, dtype=torch.bfloat16, scale=scale) for _ in range(min(copies, 256))]

    def tensors(self, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and a place for the output."""
        inputs = draw(num_rows, self.product.in_size, dtype=torch.bfloat16)
        return inputs, torch.empty(num_rows, self.product.out_size, dtype=torch.bfloat16, device=DEVICE)

    def torch_us(self, num_rows: int) -> float:
        """Time torch's product, with the gate in a kernel of its own."""
        inputs, out = self.tensors(num_rows)
        if self.product.gated:
            return microseconds([lambda weight=weight: silu_mul(inputs @ weight.t()) for weight in self.weights])
        return microseconds([lambda weight=weight: torch.mm(inputs, weight.t(), out=out) for weight in self.weights])

    def check(self, num_rows: int, tiling: Tiling) -> dict[str, object]:
        """Compare what ``tiling`` computes with torch's product."""
        inputs, out = self.tensors(num_rows)
        kernel = linear_triton.gated_linear if self.product.gated else linear_triton.linear
        kernel(inputs, self.weights[0], None, out, tiling)
        exact = inputs.float() @ self.weights[0].float().t()
        exact = silu_mul_reference(exact) if self.product.gated else exact
        return verdict(f"{self.product.name}, {num_rows} rows, {tiling}", out, exact.bfloat16())

    def launches(self, num_rows: int, tiling: Tiling) -> list[Launch]:
        """Return a launch for each copy."""
        inputs, out = self.tensors(num_rows)
        kernel = linear_triton.gated_linear if self.product.gated else linear_triton.linear
        return [lambda weight=weight: kernel(inputs, weight, None, out, tiling) for weight in self.weights]


def candidates(product: Product, num_rows: int) -> list[Tiling]:
    """Return the tilings worth trying."""
    every = ONE_ROW_TILINGS if num_rows == 1 else FEW_ROWS_TILINGS
    most = 64 if product.gated else 128
    return [one for one in every if one.block_in < 2 * product.in_size and one.block_out <= most]


def compile_ahead(bench: Bench) -> None:
    """Compile every candidate of a product at once; one that fails is reported when it is timed."""

    def launch(job: tuple[int, Tiling]) -> None:
        try:
            bench.launches(*job)[0]()
        except OutOfResources:
            return

    jobs = [(rows, tiling) for rows in (1, 2) for tiling in candidates(bench.product, rows)]
    launch(jobs[0])
    with ThreadPoolExecutor(COMPILING_THREADS) as pool:
        list(pool.map(launch, jobs[1:]))
    torch.cuda.synchronize()


def tune(bench: Bench, num_rows: int) -> dict[Tiling, float]:
    """Return the candidates' times, best first; the best four are timed once more, for longer."""
    times: dict[Tiling, float] = {}
    for tiling in candidates(bench.product, num_rows):
        try:
            times[tiling] = microseconds(bench.launches(num_rows, tiling))
        except OutOfResources:
            continue
    for tiling in sorted(times, key=times.__getitem__)[:4]:
        times[tiling] = microseconds(bench.launches(num_rows, tiling), replays=20)
    return dict(sorted(times.items(), key=lambda item: item[1]))


def time_products(model: str, product: Product, *, tuning: bool) -> Iterator[dict[str, object]]:
    """Time a product at each number of rows: torch's, the table's tiling, and with ``tuning`` all candidates."""
    bench = Bench(product)
    if tuning:
        compile_ahead(bench)
    for num_rows in ROW_CLASSES:
        tiling = product.table.get((row_class(num_rows), product.out_size, product.in_size))
        times = tune(bench, num_rows) if tuning else {}
        if tiling is not None and tiling not in times:
            times[tiling] = microseconds(bench.launches(num_rows, tiling))
        best = min(times, key=times.__getitem__, default=None)
        yield {
            "model": model,
            "product": product.name,
            "key": (num_rows, product.out_size, product.in_size),
            "gated": product.gated,
            "times": product.times,
            "bytes": product.num_bytes,
            "torch_us": bench.torch_us(num_rows),
            "table_us": None if tiling is None else times[tiling],
            "best": best,
            "best_us": None if best is None else times[best],
            "check": None if best is None else bench.check(num_rows, best),
            "tried": [(*tried, round(us, 2)) for tried, us in times.items()],
        }


def print_tables(rows: Iterable[dict]) -> None:
    """Print what to paste into ``linear_tilings.py``: only what is faster than torch."""
    rows = list(rows)
    for gated in (False, True):
        print("\nGATED_TILINGS" if gated else "\nTILINGS")
        for row in rows:
            if row["gated"] == gated and row["best"] and row["check"]["correct"] and row["best_us"] < row["torch_us"]:
                print(f"    {row['key']}: Tiling({', '.join(map(str, row['best']))}),")


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
            fastest = sum(row["times"] * min(row["best_us"] or math.inf, row["torch_us"]) for row in those)
            torch_alone = sum(row["times"] * row["torch_us"] for row in those)
            print(f"  {model:<14}{num_rows:>4}{fastest / 1000:>9.3f}{torch_alone / 1000:>9.3f}")


def main() -> int:
    """Run everything; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="try tilings for the few-row products and print the best")
    parser.add_argument("--output", type=Path, help="write everything measured to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    checks = check_all()
    print(f"{len(checks)} checks, {time.perf_counter() - started:.0f} s", flush=True)
    small = [row for width in WIDTHS[:2] for num_rows in (1, 8) for row in time_small(width, num_rows)]
    products: list[dict] = []
    for model, those in PRODUCTS.items():
        for product in those:
            products += time_products(model, product, tuning=options.tune)
            torch.cuda.empty_cache()
            print(f"{model} {product.name}, {time.perf_counter() - started:.0f} s", flush=True)
    checks += [row["check"] for row in products if row["check"]]
    wrong = [check for check in checks if not check["correct"]]
    if options.tune:
        print_tables(products)
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
