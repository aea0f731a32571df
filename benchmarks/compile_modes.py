"""Kernels as written against generated code between attention calls: time per token, and the tokens themselves.

    python benchmarks/compile_modes.py [--model smollm2] [--batch-sizes 1,8] [--turns 3]
                                       [--output-len 256] [--graph-policy POLICY] [--json FILE]

Random weights, greedy, 128 tokens in. The two engines stand over the same weights and take turns. Their words are
compared as ``legato verify`` compares them: a token may be another one only where the two tie. Exits with 1 if they
are not the same.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median

from rich.console import Console

from legato.bench.legato_contestant import LegatoContestant
from legato.bench.prompts import fresh_prompts
from legato.config.options import EngineOptions
from legato.engine.bootstrap import load_model
from legato.engine.pinned_options import pinned
from legato.engine.progress import BuildProgress
from legato.engine.resolve import resolve
from legato.verify.prompts import default_prompts
from legato.verify.transcript import Comparison, compare, requests_for, transcribe

COMPILERS = ("none", "inductor")
INPUT_LEN = 128


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch-sizes", default="1,8", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--turns", default=3, type=int)
    parser.add_argument("--output-len", default=256, type=int)
    parser.add_argument("--graph-policy", default=None)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def engines(asked: argparse.Namespace, console: Console) -> dict[str, tuple[LegatoContestant, float]]:
    """Return an engine per compiler, over the same weights, with the seconds that building it took."""
    options = EngineOptions(
        model=asked.model,
        load_format="dummy",
        device=asked.device,
        dtype=asked.dtype,
        max_model_len=INPUT_LEN + asked.output_len,
        max_num_seqs=max(8, *asked.batch_sizes),
        kv_cache_memory_bytes=1 << 30,
        prefix_caching=False,
    )
    resolved = resolve(options)
    model = load_model(resolved, BuildProgress(console))
    options = replace(pinned(options, resolved), graph_policy=asked.graph_policy)
    built = {}
    for compiler in COMPILERS:
        started = time.perf_counter()
        engine = LegatoContestant(compiler, replace(options, compile=compiler), console, model=model)
        built[compiler] = engine, time.perf_counter() - started
    return built


def compared(written: LegatoContestant, generated: LegatoContestant) -> Comparison:
    """Return how far the two engines' words are apart."""
    prompts = default_prompts(written.core.tokenizer, written.core.config, 16)
    said = [transcribe(one.core, requests_for(one.core, prompts, 16)) for one in (written, generated)]
    config = written.core.config
    return compare(said[0], said[1], dtype=config.dtype, vocab_size=config.model.vocab_size)


def main() -> int:
    """Measure, print a row per batch size and compiler, and say whether the words are the same."""
    asked, console = arguments(), Console(stderr=True)
    built = engines(asked, console)
    vocab_size = built["none"][0].core.config.model.vocab_size
    rows = []
    for batch_size in asked.batch_sizes:
        times: dict[str, list[float]] = {compiler: [] for compiler in COMPILERS}
        for turn in range(1 + asked.turns):  # the first one warms up
            prompts = tuple(islice(fresh_prompts(turn, vocab_size, INPUT_LEN), batch_size))
            for compiler, (engine, _) in built.items():
                timing = engine.generate(prompts, asked.output_len)
                times[compiler].append((timing.total_s - timing.first_token_s) * 1e3 / (asked.output_len - 1))
        for compiler, (engine, seconds) in built.items():
            row = {"case": f"decode-b{batch_size}", "compile": compiler, "tpot_ms": median(times[compiler][1:])}
            row |= {"build_s": seconds, "steps": engine.core.stats().graph_steps}
            row["dropped"] = len(engine.core.dropped)
            rows.append(row)
            print(json.dumps(row), flush=True)
    words = compared(built["none"][0], built["inductor"][0])
    same = words.departure is None
    result = {"tokens": words.num_tokens, "near_ties": words.num_near_ties, "same": same}
    result["max_logprob_difference"] = words.max_logprob_difference
    print(json.dumps(result), words.departure or "")
    if asked.json:
        asked.json.write_text(json.dumps({"rows": rows, "words": result}, indent=2))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
