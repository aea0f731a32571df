"""What watching the live page costs the server: throughput and processor time with viewers, beside those with none.

    python benchmarks/live_page_cost.py [--viewers 10] [--streams 8] [--seconds 10] [--rounds 5] [--save FILE.json]
        [-- SERVE OPTIONS]

A server of its own runs a closed loop of streams; rounds with and without viewers take turns, so that what else the
machine does falls on both. Viewers read every byte and drop it, in a process of their own.
``tokens per second`` is taken from the engine's own count. ``server`` and ``engine`` are seconds of processor time per
second, of the process that speaks HTTP and of the one that steps: on a machine with a core for each, only the latter
can slow a step down. ``--streams 0`` shows what viewers cost an engine that does nothing. Medians are compared.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import httpx
from served import Server, processor_seconds, serving

from legato.results.place import this_commit, this_environment
from legato.results.rows_file import portable_command, write_rows

SETTLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement."""

    tokens_per_second: float
    server: float
    engine: float


def watch(url: str, viewers: int) -> None:
    """Read the stream of the live page ``viewers`` times at once, until killed."""

    async def read(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", f"{url}/ui/events") as response:
            async for _ in response.aiter_raw():
                pass

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=viewers)
        async with httpx.AsyncClient(timeout=None, limits=limits) as client:
            await asyncio.gather(*(read(client) for _ in range(viewers)))

    asyncio.run(all_of_them())


def load(url: str, streams: int) -> None:
    """Keep ``streams`` streaming requests running, until killed."""
    body = {"max_tokens": 128, "stream": True, "ignore_eos": True, "temperature": 0, "prompt": "One, two, three,"}

    async def ask(client: httpx.AsyncClient) -> None:
        while True:
            async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                async for _ in response.aiter_raw():
                    pass

    async def all_of_them() -> None:
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=streams)) as client:
            await asyncio.gather(*(ask(client) for _ in range(streams)))

    asyncio.run(all_of_them())


def measure(server: Server, seconds: float) -> Round:
    """Return what happens in so many seconds."""
    time.sleep(SETTLE_S)
    before, began = _counts(server), time.monotonic()
    time.sleep(seconds)
    after, passed = _counts(server), time.monotonic() - began
    tokens, at_server, at_engine = ((late - early) / passed for early, late in zip(before, after, strict=True))
    return Round(tokens_per_second=tokens, server=at_server, engine=at_engine)


def _counts(server: Server) -> tuple[float, float, float]:
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    found = re.search(r"^legato:generation_tokens_total (\S+)", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1]), processor_seconds(server.pid), processor_seconds(server.engine_pid)


@contextmanager
def running(target: object, *arguments: object) -> Iterator[None]:
    """Run a function in a process of its own for as long as the block takes."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What watching the live page costs.")
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, help="add the row to this result file")
    parser.add_argument("options", nargs="*", help="options of legato serve, behind --")
    given = parser.parse_args()
    alone: list[Round] = []
    watched: list[Round] = []
    with serving(given.options) as server, running(load, server.url, given.streams):
        for _ in range(given.rounds):
            alone.append(measure(server, given.seconds))
            with running(watch, server.url, given.viewers):
                watched.append(measure(server, given.seconds))
    fields = ("tokens_per_second", "server", "engine")
    medians = {
        name: {field: median(getattr(each, field) for each in rounds) for field in fields}
        for name, rounds in (("alone", alone), ("watched", watched))
    }
    idle = medians["alone"]["tokens_per_second"] == 0
    ratio = None if idle else medians["watched"]["tokens_per_second"] / medians["alone"]["tokens_per_second"]
    rounds = {"alone": [asdict(each) for each in alone], "watched": [asdict(each) for each in watched]}
    row = {
        "case": f"viewers-{given.viewers}",
        "viewers": given.viewers,
        "streams": given.streams,
        "medians": medians,
        "throughput_ratio": ratio,
        "rounds": rounds,
    }
    print(json.dumps(row, indent=2))
    if given.save:
        command = portable_command(sys.argv[1:], program=("python", "benchmarks/live_page_cost.py"))
        place = this_environment("cpu")
        write_rows(given.save, [row], environment=place, command=command, commit=this_commit(), append=True)


if __name__ == "__main__":
    main()
