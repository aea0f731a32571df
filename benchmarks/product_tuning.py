"""The few-row products as a model uses them, and the search for their tilings on a GPU.

Times are those of one launch inside a CUDA graph over as many copies of the weights as a model has layers, or as
exceed the L2 cache.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from product_candidates import candidates, tuned_rows
from product_checks import DEVICE, draw, verdict
from product_list import Product

from legato.kernels import linear_triton
from legato.kernels.linear import Norm, gated_linear_reference, linear_reference
from legato.kernels.linear_tilings import Tiling, row_class
from legato.kernels.rms_norm import rms_norm
from legato.kernels.silu_mul import silu_mul

BEYOND_L2_BYTES = 256 << 20
MIN_LAUNCHES = 16
MAX_COPIES = 30
ROW_CLASSES = (1, 2, 4, 8, 16, 32, 64)
AS_FOR_EIGHT = (2, 4, 16)
"""Numbers of rows at which the fastest of 8 rows are tried: on the tensor cores the work is the same up to 16."""
TIMED_AGAIN = 4
"""Candidates that are timed once more, for longer."""
WORTH = 1.01
"""A tiling is exchanged for one that is this much faster: less is noise."""
Launch = Callable[[], object]


def microseconds(launches: Sequence[Launch], *, replays: int = 6, repeats: int = 3) -> float:
    """Return the time of one launch: the best of ``repeats`` runs of ``replays`` replays of all of them in a graph."""
    launches = list(islice(cycle(launches), max(MIN_LAUNCHES, len(launches))))
    launches[0]()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
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


def run(
    product: Product, inputs: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, norm: Norm, tiling: Tiling
) -> None:
    """Launch our kernel of ``product``, behind one of its norm where the tiling has them apart."""
    folded = product.normed and tiling.norm != "apart"
    if product.normed and not folded:
        inputs = rms_norm(inputs, *norm) if inputs.device.type != "meta" else inputs
    linear_triton.linear(
        inputs,
        weight,
        None,
        out,
        tiling,
        norm=norm if folded else None,
        gated=product.gated,
        added=product.added,
    )


class Bench:
    """Copies of a product's weights, and the launches over them."""

    def __init__(self, product: Product) -> None:
        self.product = product
        copies = min(MAX_COPIES, max(1, math.ceil(BEYOND_L2_BYTES / product.num_bytes)))
        scale = product.in_size**-0.5
        self.weights = [draw(*product.weight_shape, dtype=torch.bfloat16, scale=scale) for _ in range(copies)]
        self.norm = Norm(draw(product.in_size, dtype=torch.bfloat16), 1e-5)

    def tensors(self, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and a place for the output, which holds zeros."""
        inputs = draw(num_rows, self.product.in_size, dtype=torch.bfloat16)
        return inputs, torch.zeros(num_rows, self.product.out_size, dtype=torch.bfloat16, device=DEVICE)

    def torch_us(self, num_rows: int) -> float:
        """Time torch's product with what stands around it, in kernels of their own."""
        inputs, out = self.tensors(num_rows)
        return microseconds([partial(self._torch, inputs, weight, out) for weight in self.weights])

    def _torch(self, inputs: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        if self.product.normed:
            inputs = rms_norm(inputs, *self.norm)
        if self.product.gated:
            silu_mul(inputs @ weight.t())
        elif self.product.added:
            out.addmm_(inputs, weight.t())
        else:
            torch.mm(inputs, weight.t(), out=out)

    def launches(self, num_rows: int, tiling: Tiling) -> list[Launch]:
        """Return a launch for each copy."""
        inputs, out = self.tensors(num_rows)
        return [partial(run, self.product, inputs, weight, out, self.norm, tiling) for weight in self.weights]

    def exact(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the product of ``inputs`` with the first weights, by torch's operations in float32."""
        norm = Norm(self.norm.weight.float(), self.norm.eps) if self.product.normed else None
        exact_inputs, exact_weight = inputs.float(), self.weights[0].float()
        if self.product.gated:
            assert norm is not None
            return gated_linear_reference(exact_inputs, exact_weight, norm=norm)
        return linear_reference(exact_inputs, exact_weight, norm=norm)

    def check(self, num_rows: int, tilings: Sequence[Tiling]) -> Iterator[dict[str, Any]]:
        """Compare what each of ``tilings`` computes, the second time, with float32; one that cannot run is left out."""
        inputs, out = self.tensors(num_rows)
        expected = self.exact(inputs).bfloat16()
        for tiling in tilings:
            try:
                for _ in range(2):
                    run(self.product, inputs, self.weights[0], out.zero_(), self.norm, tiling)
            except Exception as problem:  # reported: a candidate may not fit the GPU
                print(f"  {self.product.name} {tuple(tiling)}: {type(problem).__name__}: {problem}"[:200], flush=True)
                continue
            label = f"{self.product.name}, {num_rows} rows, {tuple(tiling)}"
            yield verdict(label, out, expected, roundings=6) | {"tiling": tiling}


def compilations(product: Product, at: Collection[int]) -> Iterator[Launch]:
    """Yield what compiles each candidate of ``product``; a kernel of several rows is the same for any number."""
    seen = set()
    for num_rows in tuned_rows(product, at):
        for tiling in candidates(product, num_rows):
            if (num_rows == 1, tiling) not in seen:
                seen.add((num_rows == 1, tiling))
                yield partial(compilation, product, num_rows, tiling)


def compilation(product: Product, num_rows: int, tiling: Tiling) -> None:
    """Launch a kernel over tensors without memory: for a process that compiles what it launches."""
    shapes = (num_rows, product.in_size), product.weight_shape, (num_rows, product.out_size), (product.in_size,)
    inputs, weight, out, vector = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    run(product, inputs, weight, out, Norm(vector, 1e-5), tiling)


def tiling_checks(products: Sequence[Product]) -> Iterator[dict[str, object]]:
    """Check forms that the tables need not hold: several blocks of rows, splits, all columns at once."""
    for product in products:
        bench = Bench(product._replace(times=1))
        for num_rows, tiling in (
            (1, Tiling(2, 2048, 4, 1)),
            (1, Tiling(8, 256, 4, 3)),
            (5, Tiling(16, 64, 4, 4, splits=3)),
            (8, Tiling(8, 64, 4, 6)),
            (33, Tiling(16, 64, 4, 4, block_rows=16)),
            (64, Tiling(32, 64, 4, 4, block_rows=64)),
            (64, Tiling(32, 64, 4, 4, block_rows=32, splits=2)),
            (8, Tiling(16, 64, 4, 4, norm="weights")),
            (64, Tiling(32, 64, 4, 4, block_rows=64, splits=2, norm="weights")),
            (64, Tiling(16, 64, 4, 4, block_rows=64, norm="apart")),
        ):
            yield from bench.check(num_rows, (tiling,))


def search(bench: Bench, num_rows: int, tilings: Sequence[Tiling]) -> tuple[dict[Tiling, float], list[dict[str, Any]]]:
    """Return the times of those that compute the right thing, best first, and every comparison."""
    checks = list(bench.check(num_rows, tilings))
    right = [check["tiling"] for check in checks if check["correct"]]
    times = {tiling: microseconds(bench.launches(num_rows, tiling)) for tiling in right}
    for tiling in sorted(times, key=times.__getitem__)[:TIMED_AGAIN]:
        times[tiling] = microseconds(bench.launches(num_rows, tiling), replays=20)
    return dict(sorted(times.items(), key=lambda item: item[1])), checks


def choose(times: Mapping[Tiling, float], present: Tiling | None, torch_us: float) -> Tiling | None:
    """Return the fastest, or the ``present`` one if that is as good, or None if torch is."""
    if not times:
        return None
    best = min(times, key=times.__getitem__)
    if present is not None and present in times and times[present] <= times[best] * WORTH:
        best = present
    return best if times[best] < torch_us else None


def tune_product(model: str, product: Product, at: Collection[int]) -> Iterator[dict[str, Any]]:
    """Search ``at`` numbers of rows, and yield a row for each: times, choice and comparisons."""
    bench = Bench(product)
    winners: list[Tiling] = []
    for num_rows in tuned_rows(product, at):
        key = (row_class(num_rows), product.out_size, product.in_size)
        present = product.table.get(key)
        tilings = candidates(product, num_rows) + (winners if num_rows in AS_FOR_EIGHT else [])
        times, checks = search(bench, num_rows, list(dict.fromkeys([*tilings, *([present] if present else [])])))
        if num_rows == 8:
            winners = list(times)[:TIMED_AGAIN]
        torch_us = bench.torch_us(num_rows)
        chosen = choose(times, present, torch_us)
        yield {
            "model": model,
            "product": product.name,
            "table": product.table_name,
            "key": key,
            "times": product.times,
            "bytes": product.num_bytes,
            "torch_us": torch_us,
            "present_us": times.get(present) if present else None,
            "chosen": chosen,
            "chosen_us": times[chosen] if chosen else None,
            "wrong": [check for check in checks if not check["correct"]],
            "checks": len(checks),
            "tried": [(*tried, round(us, 2)) for tried, us in times.items()],
        }


def time_product(model: str, product: Product) -> Iterator[dict[str, Any]]:
    """Time a product as the tables have it, and torch's, at each number of rows."""
    bench = Bench(product)
    for num_rows in ROW_CLASSES:
        key = (row_class(num_rows), product.out_size, product.in_size)
        tiling = product.table.get(key)
        yield {
            "model": model,
            "product": product.name,
            "key": key,
            "times": product.times,
            "bytes": product.num_bytes,
            "torch_us": bench.torch_us(num_rows),
            "tiling": tiling,
            "us": microseconds(bench.launches(num_rows, tiling)) if tiling else None,
        }
