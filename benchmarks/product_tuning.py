"""The few-row products as a model uses them, and the search for their tilings on a GPU.

Times are those of one launch inside a CUDA graph over as many copies of the weights as a model has layers, or as
exceed the L2 cache. Kernels are compiled ahead by processes that launch nothing, into Triton's cache on disk.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import cycle, islice

import torch
from product_checks import DEVICE, Product, draw, verdict
from triton.runtime.errors import OutOfResources

from legato.kernels import early_start_triton, linear_triton
from legato.kernels.linear import Norm, gated_linear_reference, linear_reference
from legato.kernels.linear_tilings import Tiling, row_class
from legato.kernels.rms_norm import rms_norm
from legato.kernels.silu_mul import silu_mul

BEYOND_L2_BYTES = 256 << 20
MIN_LAUNCHES = 16
MAX_COPIES = 30
MANY_ROWS = 1 << 20
COMPILING_PROCESSES = min(16, os.cpu_count() or 1)
Launch = Callable[[], object]


def _tilings(*values: tuple[int, ...]) -> list[Tiling]:
    return [Tiling(*one) for one in values]


NARROW = 2048
"""Up to here a program of one row takes the whole width at once, and several rows have few steps to take."""
ONE_ROW_NARROW = _tilings(
    (1, 1024, 2, 1), (1, 1024, 4, 1), (2, 1024, 2, 1), (2, 1024, 4, 1), (4, 1024, 4, 1), (4, 1024, 8, 1),
    (1, 2048, 4, 1), (2, 2048, 4, 1), (2, 2048, 8, 1), (1, 512, 1, 1), (2, 512, 2, 1), (4, 512, 4, 1),
)  # fmt: skip
ONE_ROW_WIDE = _tilings(
    (4, 2048, 8, 1), (2, 2048, 8, 1), (2, 2048, 4, 1), (1, 4096, 4, 1), (2, 4096, 8, 1), (4, 1024, 4, 1),
    (4, 1024, 4, 3), (8, 512, 4, 3), (8, 512, 4, 5), (8, 256, 1, 1), (16, 256, 4, 5), (4, 512, 2, 1),
)  # fmt: skip
FEW_ROWS_NARROW = _tilings(
    (8, 64, 4, 6), (8, 64, 4, 9), (8, 128, 4, 5), (16, 64, 4, 6), (16, 64, 4, 9), (16, 128, 4, 5), (32, 64, 4, 6),
    (32, 128, 4, 5), (16, 256, 4, 4), (32, 64, 2, 9), (16, 128, 2, 5), (16, 128, 4, 4, 16, 2), (16, 128, 4, 3, 16, 4),
)  # fmt: skip
FEW_ROWS_WIDE = _tilings(
    (16, 256, 4, 4), (16, 256, 4, 6), (32, 128, 4, 5), (32, 128, 4, 7), (32, 256, 4, 4), (64, 64, 4, 7),
    (64, 128, 4, 4), (64, 128, 4, 5), (128, 64, 4, 5),
    (32, 128, 4, 5, 16, 2), (32, 256, 4, 4, 16, 2), (64, 64, 4, 7, 16, 2), (64, 128, 4, 5, 16, 2),
    (64, 128, 4, 5, 16, 4), (64, 128, 4, 5, 16, 8), (128, 128, 8, 4, 16, 4), (128, 64, 4, 6, 16, 8),
)  # fmt: skip
MORE_ROWS = _tilings(
    (16, 64, 4, 5, 16), (16, 64, 4, 9, 16), (32, 64, 4, 5, 16), (32, 128, 4, 4, 16), (16, 64, 4, 5, 32),
    (16, 64, 4, 9, 32), (32, 64, 4, 5, 32), (32, 64, 8, 5, 32), (64, 64, 4, 4, 32), (16, 128, 4, 4, 32),
    (16, 64, 4, 5, 64), (32, 64, 4, 5, 64), (32, 64, 8, 5, 64), (64, 64, 8, 4, 64), (16, 128, 4, 4, 64),
    (16, 128, 4, 3, 32, 2), (32, 128, 4, 3, 64, 4),
)  # fmt: skip


TUNED_ROWS = (1, 8, 32, 64)
"""Between them, the winner of the next larger one is timed alone: up to 16 rows the work is the same."""


def tuned_rows(product: Product) -> tuple[int, ...]:
    """Return the numbers of rows to search at: a wide product of more than 16 rows is left to torch."""
    return TUNED_ROWS if product.in_size <= NARROW and product.out_size <= 16384 else TUNED_ROWS[:2]


def candidates(product: Product, num_rows: int) -> list[Tiling]:
    """Return the tilings worth trying."""
    narrow = product.in_size <= NARROW
    if num_rows == 1:
        every = ONE_ROW_NARROW if narrow else ONE_ROW_WIDE
    elif num_rows > 16:
        every = MORE_ROWS
    else:
        every = FEW_ROWS_NARROW if narrow else FEW_ROWS_WIDE
    most_out = 64 if product.gated else 128
    return [
        one
        for one in every
        if one.block_in < 2 * product.in_size
        and one.block_out <= most_out
        and one.block_rows <= max(16, num_rows)
        and (one.splits == 1 or product.out_size <= 16384)
    ]


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
    """Launch our kernel of ``product``."""
    linear_triton.linear(
        inputs,
        weight,
        None,
        out,
        tiling,
        norm=norm if product.normed else None,
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

    def check(self, num_rows: int, tiling: Tiling) -> dict[str, object]:
        """Compare what ``tiling`` computes, the second time, with torch's operations in float32."""
        inputs, out = self.tensors(num_rows)
        for _ in range(2):
            run(self.product, inputs, self.weights[0], out.zero_(), self.norm, tiling)
        norm = Norm(self.norm.weight.float(), self.norm.eps) if self.product.normed else None
        exact_inputs, exact_weight = inputs.float(), self.weights[0].float()
        if self.product.gated:
            assert norm is not None
            expected = gated_linear_reference(exact_inputs, exact_weight, norm=norm)
        else:
            expected = linear_reference(exact_inputs, exact_weight, norm=norm)
        return verdict(f"{self.product.name}, {num_rows} rows, {tiling}", out, expected.bfloat16(), roundings=6)


def _compile(product: Product, num_rows: int, tiling: Tiling) -> None:
    """Leave a compiled kernel in Triton's cache; runs in a process of its own, on tensors without memory."""
    for kernel in (linear_triton.one_row_kernel, linear_triton.few_rows_kernel):
        if not isinstance(kernel.run, partial):
            kernel.run = partial(_without_launch, kernel.run)
    inputs, weight, out, norm_weight = (
        torch.empty(shape, dtype=torch.bfloat16, device="meta")
        for shape in (
            (num_rows, product.in_size),
            product.weight_shape,
            (num_rows, product.out_size),
            (product.in_size,),
        )
    )
    run(product, inputs, weight, out, Norm(norm_weight, 1e-5), tiling)


def _without_launch(original: Callable[..., object], *arguments: object, **options: object) -> object:
    return original(*arguments, **options | {"warmup": True})


def start_early(enabled: bool) -> None:
    """Let kernels of this process start while the one before them still runs, or not."""
    early_start_triton.MAX_ROWS = early_start_triton.MAX_NARROW_ROWS = MANY_ROWS if enabled else 0


def compile_ahead(products: Sequence[Product]) -> None:
    """Compile all candidates of all products; what fails is tried, and reported, once more when it is timed."""
    jobs = {
        (product, num_rows == 1, tiling): num_rows
        for product in products
        for num_rows in tuned_rows(product)
        for tiling in candidates(product, num_rows)
    }  # a kernel of several rows is the same for any number of them
    context = multiprocessing.get_context("spawn")
    early = (early_start_triton.MAX_ROWS > 0,)
    with ProcessPoolExecutor(COMPILING_PROCESSES, context, initializer=start_early, initargs=early) as pool:
        futures = [pool.submit(_compile, product, rows, tiling) for (product, _, tiling), rows in jobs.items()]
        failed = [future.exception() for future in as_completed(futures) if future.exception()]
    print(f"{len(jobs) - len(failed)} of {len(jobs)} kernels compiled", flush=True)
    if failed:
        print(f"  {failed[0]!r}", flush=True)


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
        ):
            yield bench.check(num_rows, tiling)


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


def row_classes(product: Product) -> tuple[int, ...]:
    """Return the numbers of rows to report."""
    return (1, 2, 4, 8, 16, *tuned_rows(product)[2:])


def time_products(model: str, product: Product, *, tuning: bool) -> Iterator[dict[str, object]]:
    """Time a product at each number of rows: torch's, the table's tiling, and with ``tuning`` the best candidate."""
    bench = Bench(product)
    found = {num_rows: tune(bench, num_rows) for num_rows in tuned_rows(product)} if tuning else {}
    for num_rows in row_classes(product):
        tiling = product.table.get((row_class(num_rows), product.out_size, product.in_size))
        times = dict(found.get(num_rows, {}))
        chosen = {tiling} if tiling is not None else set()
        if tuning and num_rows in (2, 4, 16):
            chosen |= set(list(found[8])[:1])
        for each in chosen - times.keys():
            times[each] = microseconds(bench.launches(num_rows, each))
        best = min(times, key=times.__getitem__, default=None)
        yield {
            "model": model,
            "product": product.name,
            "table": product.table_name,
            "key": (num_rows, product.out_size, product.in_size),
            "times": product.times,
            "bytes": product.num_bytes,
            "torch_us": bench.torch_us(num_rows),
            "table_us": None if tiling is None else times[tiling],
            "best": best,
            "best_us": None if best is None else times[best],
            "check": None if best is None else bench.check(num_rows, best),
            "tried": [(*tried, round(us, 2)) for tried, us in times.items()],
        }
