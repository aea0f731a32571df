"""Tune the kernels of decode steps on a GPU, and write what was found into their tables.

    PYTHONPATH=src python benchmarks/tune_kernels.py [--stages products,decodes,steps] [--rows 1,2,4]
        [--models llama-3.1-8b --batches 16,32] [--output FILE.json]

Products of few rows, then decodes: every candidate is checked against float32 and timed inside a CUDA graph. Then whole
steps of random models: of the best of each, a step takes what makes it faster, and its kernels start early where that
does. Each stage writes the sources of ``src/legato/kernels`` that it decides, so that what is known is kept if a later
one ends early. Exits with 1 if any result was wrong; wrong candidates are not taken.
"""

# ruff: noqa: TID251 (as in all that is timed with CUDA's own events and graphs)
import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import decode_tuning
import step_tuning
import torch
from compile_ahead import Compiler
from kernel_settings import Settings, present_settings, set_early
from product_checks import DEVICE
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES, compilation, compilations, tune_product
from step_tuning import Tilings
from tuned_tables import PRODUCT_TABLES, decodes_source, merged, products_source, with_constants

from legato.device.facts import DeviceFacts
from legato.device.registry import open_device

STAGES = ("products", "decodes", "steps")
Report = dict[str, Any]


def tune_products(before: Settings, at: Collection[int], report: Report) -> Settings:
    """Search tilings of all products ``at`` numbers of rows; return the settings with those that were chosen."""
    rows = report["products"] = []
    for model, those in PRODUCTS.items():
        for product in those:
            rows += tune_product(model, product, at)
            torch.cuda.empty_cache()
            print_products(rows, product.name, model)
    tables = {
        name: merged(
            before.tables[name],
            [row["key"] for row in rows if row["table"] == name],
            {row["key"]: row["chosen"] for row in rows if row["table"] == name and row["chosen"]},
        )
        for name in PRODUCT_TABLES
    }
    return Settings(tables=tables, decodes=before.decodes, early=before.early)


def print_products(rows: Iterable[Report], product: str, model: str) -> None:
    """Print a line for each number of rows of a product."""
    for row in rows:
        if (row["product"], row["model"]) == (product, model):
            present, chosen = row["present_us"] or row["torch_us"], row["chosen_us"] or row["torch_us"]
            form = tuple(row["chosen"]) if row["chosen"] else "torch"
            print(f"{model:<20}{product:<9}{row['key'][0]:>3} {present:8.2f} -> {chosen:8.2f} us  {form}", flush=True)


def tune_decodes(
    before: Settings, models: Sequence[decode_tuning.Heads], facts: DeviceFacts, report: Report
) -> Settings:
    """Search tiles and splits of decodes; return the settings with those that were chosen."""
    rows = report["decodes"] = []
    for row in decode_tuning.tune_decodes(models, facts, DEVICE):
        rows.append(row)
        times = ", ".join(
            f"{context}: {row['present_us'][context]:.1f} -> {us:.1f}" for context, us in row["us"].items()
        )
        print(f"{row['model']:<14}{row['batch']:>4} x {times} us  {row['chosen'] or 'as it was'}", flush=True)
    chosen = {row["key"]: row["chosen"] for row in rows if row["chosen"]}
    return Settings(tables=before.tables, decodes={**before.decodes, **chosen}, early=before.early)


def tune_steps(
    before: Settings, tuned: Settings, tilings: Tilings, at: Collection[int], facts: DeviceFacts, report: Report
) -> Settings:
    """Take what makes whole steps ``at`` numbers of rows faster; return the settings with it, all else as ``tuned``."""
    rows = report["steps"] = []
    settings = start = step_tuning.undecided(tuned, before)
    for row in step_tuning.tune_steps(start, tilings, tuned.decodes, at, facts):
        settings = row.pop("settings")
        rows.append(row)
        took = ", ".join(row["taken"]) or "nothing"
        print(f"{row['model']:<14}{row['rows']:>3} {row['before_ms']:.4f} -> late {row['late_ms']:.4f}, "
              f"early {row['early_ms']:.4f} ms ({took})", flush=True)  # fmt: skip
    print(settings.early)
    return settings


def step_kernels(
    before: Settings, tuned: Settings, tilings: Tilings, at: Collection[int], facts: DeviceFacts
) -> Iterator[Callable[[], object]]:
    """Yield the launches of products and decodes that whole steps will try."""
    for model in step_tuning.NUM_LAYERS:
        for product in PRODUCTS[model]:
            for num_rows in at:
                key = (num_rows, product.out_size, product.in_size)
                present = before.tables[product.table_name].get(key)
                for tiling in {present, *tilings.get((product.table_name, key), ())} - {None}:
                    yield partial(compilation, product, num_rows, tiling)
    yield from decode_tuning.compilations_of(tuned.decodes, facts.num_multiprocessors)


def write(settings: Settings, folder: Path, measured_on: str) -> None:
    """Write the kernels' tables and constants."""
    (folder / "linear_measured.py").write_text(products_source(settings.tables, measured_on))
    (folder / "paged_attention_measured.py").write_text(decodes_source(settings.decodes, measured_on))
    early = folder / "early_start_triton.py"
    rows = {"NARROW_ROWS": settings.early.narrow_rows, "WIDE_ROWS": settings.early.wide_rows}
    early.write_text(with_constants(early.read_text(), rows))


def numbers(listed: str) -> tuple[int, ...]:
    """Return what stands between commas."""
    return tuple(map(int, filter(None, listed.split(","))))


def main() -> int:
    """Run the stages; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default=",".join(STAGES), help="which, separated by commas")
    parser.add_argument(
        "--rows", default=",".join(map(str, ROW_CLASSES)), help="of products and steps, separated by commas"
    )
    parser.add_argument("--models", default=",".join(heads.model for heads in decode_tuning.MODELS), help="of decodes")
    parser.add_argument("--batches", default="", help="of decodes, separated by commas; else each model's own")
    parser.add_argument("--output", type=Path, help="write everything measured to this JSON file")
    parser.add_argument("--kernels", type=Path, default=Path(__file__).parents[1] / "src/legato/kernels")
    options = parser.parse_args()
    started = time.perf_counter()
    stages, at = options.stages.split(","), numbers(options.rows)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    facts = open_device("auto").facts
    measured_on = f"one {facts.name} with torch {torch.__version__.split('+')[0]} and triton {version('triton')}"
    report: Report = {"device": str(facts), "measured_on": measured_on, "stages": {}}
    before = settings = present_settings()
    compiler = Compiler()

    def finish(stage: str) -> None:
        report["stages"][stage] = time.perf_counter() - started
        print(f"== {stage}, {report['stages'][stage]:.0f} s", flush=True)
        write(settings, options.kernels, measured_on)
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(report, indent=1, default=str) + "\n")

    set_early(step_tuning.WAYS["early"])
    if "products" in stages:
        launches = [launch for those in PRODUCTS.values() for product in those for launch in compilations(product, at)]
        compiler.compile(launches, [step_tuning.WAYS["early"]])
        settings = tune_products(settings, at, report)
        finish("products")
    if "decodes" in stages:
        models = decode_tuning.chosen_models(options.models.split(","), numbers(options.batches))
        compiler.compile(decode_tuning.compilations(models, facts.num_multiprocessors), [step_tuning.WAYS["early"]])
        settings = tune_decodes(settings, models, facts, report)
        finish("decodes")
    if "steps" in stages:
        tilings = step_tuning.finalists(report.get("products", ()))
        compiler.compile(step_kernels(before, settings, tilings, at, facts), step_tuning.WAYS.values())
        settings = tune_steps(before, settings, tilings, at, facts, report)
        finish("steps")
    compiler.close()
    wrong = [one for stage in STAGES for row in report.get(stage, []) for one in row["wrong"]]
    print(f"{len(wrong)} wrong results", *wrong[:10], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
