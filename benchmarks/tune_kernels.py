"""Tune the kernels of decode steps on a GPU, and write what was found into their tables.

    PYTHONPATH=src python benchmarks/tune_kernels.py [--stages products,decodes,steps] [--output FILE.json]

Products of few rows, then decodes: every candidate is checked against float32 and timed inside a CUDA graph. Then whole
steps of random models: a change that makes a step slower is taken back, and kernels of narrow models start early where
that makes a step faster. Each stage writes the sources of ``src/legato/kernels`` that it decides, so that what is known
is kept if a later one ends early. Exits with 1 if any result was wrong; wrong candidates are not taken.
"""

# ruff: noqa: TID251 (as in all that is timed with CUDA's own events and graphs)
import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import decode_tuning
import torch
from compile_ahead import Compiler
from kernel_settings import Early, Settings, present_settings, set_early
from product_checks import DEVICE
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES, compilation, compilations, tune_product
from step_tuning import LATE, choose_early, judge_steps
from tuned_tables import PRODUCT_TABLES, decodes_source, merged, products_source, with_constants

from legato.device.facts import DeviceFacts
from legato.device.registry import open_device

STAGES = ("products", "decodes", "steps")
EARLY = Early(narrow_rows=ROW_CLASSES, near_lines=32)
"""What is tried; products are tuned with it."""
Report = dict[str, Any]


def tune_products(before: Settings, report: Report) -> Settings:
    """Search tilings of all products; return the settings with those that were chosen."""
    rows = report["products"] = []
    for model, those in PRODUCTS.items():
        for product in those:
            rows += tune_product(model, product)
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


def tune_decodes(before: Settings, facts: DeviceFacts, report: Report) -> Settings:
    """Search tiles and splits of decodes; return the settings with those that were chosen."""
    rows = report["decodes"] = []
    for row in decode_tuning.tune_decodes(facts, DEVICE):
        rows.append(row)
        times = ", ".join(
            f"{context}: {row['present_us'][context]:.1f} -> {us:.1f}" for context, us in row["us"].items()
        )
        print(f"{row['model']:<14}{row['batch']:>4} x {times} us  {row['chosen'] or 'as it was'}", flush=True)
    chosen = {row["key"]: row["chosen"] for row in rows if row["chosen"]}
    return Settings(tables=before.tables, decodes={**before.decodes, **chosen}, early=before.early)


def tune_steps(before: Settings, tuned: Settings, facts: DeviceFacts, report: Report) -> Settings:
    """Keep what makes whole steps faster; return the settings with it."""
    rows = report["steps"] = []
    settings = before
    for row in judge_steps(before, tuned, EARLY, facts):
        settings = row.pop("settings")
        rows.append(row)
        took = ", ".join(row["taken"]) or "nothing"
        starts = ", ".join(f"{name} {row[f'{name}_ms']:.4f}" for name in ("late", "early", "early_only"))
        print(f"{row['model']:<14}{row['rows']:>3} {row['before_ms']:.4f} -> {row['ms']:.4f} ms ({took}), {starts}")
    narrow = [row for row in rows if row["model"].startswith("smollm2")]
    early = choose_early(narrow, before.early, EARLY)
    print(f"early: {early}")
    return Settings(tables=settings.tables, decodes=settings.decodes, early=early)


def step_kernels(before: Settings, tuned: Settings, facts: DeviceFacts) -> list[Callable[[], object]]:
    """Return the launches of products and decodes that whole steps will make with these settings."""
    launches = [
        partial(compilation, product, key[0], tiling)
        for settings in (before, tuned)
        for model in ("smollm2-135m", "llama-3.1-8b")
        for product in PRODUCTS[model]
        for key, tiling in settings.tables[product.table_name].items()
        if key[1:] == (product.out_size, product.in_size)
    ]
    return launches + list(decode_tuning.compilations_of(tuned.decodes, facts.num_multiprocessors))


def write(settings: Settings, folder: Path, measured_on: str) -> None:
    """Write the kernels' tables and constants."""
    (folder / "linear_measured.py").write_text(products_source(settings.tables, measured_on))
    (folder / "paged_attention_measured.py").write_text(decodes_source(settings.decodes, measured_on))
    for name, constants in (
        ("early_start_triton.py", {"NARROW_ROWS": settings.early.narrow_rows}),
        ("linear_triton.py", {"NEAR_LINES": settings.early.near_lines}),
    ):
        (folder / name).write_text(with_constants((folder / name).read_text(), constants))


def main() -> int:
    """Run the stages; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default=",".join(STAGES), help="which, separated by commas")
    parser.add_argument("--output", type=Path, help="write everything measured to this JSON file")
    parser.add_argument("--kernels", type=Path, default=Path(__file__).parents[1] / "src/legato/kernels")
    options = parser.parse_args()
    started = time.perf_counter()
    stages = options.stages.split(",")
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

    set_early(EARLY)
    if "products" in stages:
        launches = [launch for those in PRODUCTS.values() for product in those for launch in compilations(product)]
        compiler.compile(launches, [EARLY])
        settings = tune_products(settings, report)
        finish("products")
    if "decodes" in stages:
        compiler.compile(decode_tuning.compilations(facts.num_multiprocessors), [EARLY])
        settings = tune_decodes(settings, facts, report)
        finish("decodes")
    if "steps" in stages:
        ways = [LATE, EARLY, EARLY._replace(near_lines=0)]
        compiler.compile(step_kernels(before, settings, facts), ways)
        settings = tune_steps(before, settings, facts, report)
        finish("steps")
    compiler.close()
    wrong = [one for stage in STAGES for row in report.get(stage, []) for one in row["wrong"]]
    print(f"{len(wrong)} wrong results", *wrong[:10], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
