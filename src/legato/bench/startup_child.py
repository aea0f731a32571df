"""The process that a start-up measurement times. Owns what an engine is asked to do in it, and when that was done."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from legato.bench.startup import Started
    from legato.config.options import EngineOptions

_PROMPT = tuple(range(1, 17))
_VLLM_MAX_NUM_SEQS = 256
"""As many as Legato takes on a GPU by default."""
_VLLM_GRAPHS = re.compile(r"Graph capturing finished in .* took (?P<gib>[\d.]+) GiB")


def main() -> None:
    """Start the engine named, and write what is to be told."""
    engine, options, answer, log = sys.argv[1:]
    start = {"legato": start_legato, "vllm": start_vllm}[engine]
    told = start(json.loads(options), Path(log))

    import msgspec

    Path(answer).write_bytes(msgspec.json.encode(told))


def start_legato(values: dict[str, object], log: Path) -> "Started":
    """Start Legato as a server would: options, engine, first token."""
    from legato.bench.legato_contestant import LegatoContestant
    from legato.bench.startup import Started

    imported = time.monotonic()
    contestant = LegatoContestant("legato", _options(values))
    built = time.monotonic()
    contestant.generate([_PROMPT], 1)
    first_token = time.monotonic()
    stats = contestant.core.stats()
    num_graphs = sum(entry["bytes"] is not None for entry in contestant.core.graph_report()["catalog"])
    return Started(
        subject=contestant.subject,
        imported=imported,
        built=built,
        first_token=first_token,
        max_num_seqs=contestant.core.config.scheduler.max_num_seqs,
        num_graphs=num_graphs,
        graph_gib=stats.graph_bytes / (1 << 30) if num_graphs else None,
    )


def start_vllm(values: dict[str, object], log: Path) -> "Started":
    """Start vLLM's ``LLM`` over the same model, limits and share of memory."""
    from legato.bench.vllm_peer import VllmPeer, import_vllm

    import_vllm()
    imported = time.monotonic()
    from legato.bench.startup import Started

    options = _options(values)
    max_num_seqs = options.max_num_seqs or _VLLM_MAX_NUM_SEQS
    # The GPU is not touched before vLLM does: it could not fork its engine then, and would import everything again.
    peer = VllmPeer(options, dtype=options.dtype, max_model_len=options.max_model_len, max_num_seqs=max_num_seqs)
    built = time.monotonic()
    peer.generate_once([_PROMPT], 1)
    first_token = time.monotonic()
    found = _VLLM_GRAPHS.findall(log.read_text(errors="replace"))
    return Started(
        subject=peer.subject,
        imported=imported,
        built=built,
        first_token=first_token,
        max_num_seqs=max_num_seqs,
        graph_gib=float(found[-1]) if found else None,
    )


def _options(values: dict[str, object]) -> "EngineOptions":
    from legato.config.options import EngineOptions

    options = EngineOptions(**values)  # type: ignore[arg-type]
    sizes = options.graph_sizes
    return replace(options, graph_sizes=None if sizes is None else tuple(sizes))


if __name__ == "__main__":
    main()
