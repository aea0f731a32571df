"""Whole steps of a random model, by how their attention is cut: what a decode costs beside its neighbours.

    PYTHONPATH=src python benchmarks/decode_in_steps.py [--model llama-3.1-8b] [--rows 4,8] [--contexts 256,1088]
        [--decode 64,4,5,2,1,0]... [--output FILE.json]

A decode that is faster alone may be slower in a step: where kernels start early, its programs come while a product
still holds most multiprocessors, and crowd on the others unless each takes more than half of a multiprocessor's shared
memory. ``--decode`` is one of the table's (``kernels/paged_attention_measured.py``): keys, warps, stages, splits, and
0 or 1 for each of its two switches. The present one is always measured.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from fused_kernel_checks import WIDTHS
from kernel_settings import apply, present_settings
from random_model import RandomModel
from tuned_tables import Decode

from legato.device.registry import open_device
from legato.kernels.paged_attention_configs import padded_head, padded_power_of_2


def measured(name: str, rows: Sequence[int], context: int, decodes: Sequence[Decode]) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of rows and decode; None: the present one."""
    width = next(one for one in WIDTHS if one.name == name)
    model, before = RandomModel(width, open_device("auto").facts, context), present_settings()
    for batch in rows:
        key = padded_head(width.head_dim), padded_power_of_2(batch * width.num_kv_heads)
        for decode in (None, *decodes):
            apply(before if decode is None else replace(before, decodes={**before.decodes, key: decode}))
            milliseconds = model.time(batch).milliseconds
            yield {"model": name, "rows": batch, "context": context, "decode": decode, "ms": milliseconds}
    apply(before)


def decode_of(text: str) -> Decode:
    """Return what the table would hold."""
    keys, warps, stages, splits, at_once, apart = map(int, text.split(","))
    return keys, warps, stages, splits, bool(at_once), bool(apart)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3.1-8b", choices=[width.name for width in WIDTHS])
    parser.add_argument("--rows", default="4,8", help="requests, separated by commas")
    parser.add_argument("--contexts", default="256,1088", help="tokens of each request, separated by commas")
    parser.add_argument("--decode", action="append", default=[], type=decode_of, help="one to try; again for more")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for context in map(int, options.contexts.split(",")):
        for row in measured(options.model, [*map(int, options.rows.split(","))], context, options.decode):
            rows.append(row)
            print("{model} {rows:>3} x {context:>5} {ms:.4f} ms  {decode}".format_map(row), flush=True)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
