"""What a soak watches beside the answers: memory, files, KV blocks and places. Owns the samples, and what is a leak."""

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from served import Server, metric, open_files, resident_mib
from soak_client import Client

Sample = dict[str, float]
MOST_SAMPLES = 120
INTERVAL_S = 1.0
SETTLED_AT, SETTLED_UNTIL = 0.2, 0.35
"""Shares of the samples between which memory is what a warm server needs."""
LATE_FROM = 0.85
ALLOWED_GROWTH = 0.04
ALLOWED_GROWTH_MIB = 24.0
"""Above what a warm server needs: what an allocator keeps differs by as much from one minute to the next."""
ALLOWED_FILES = 4


class Watch:
    """Samples of one server; of its processes too where it is our own."""

    def __init__(self, client: Client, server: Server | None) -> None:
        self.server = server
        self.samples: list[Sample] = []
        self._client = client
        self._began = time.monotonic()

    async def sample(self) -> Sample:
        """Take a sample, keep it and return it."""
        text = await self._client.metrics()
        sample: Sample = {
            "seconds": round(time.monotonic() - self._began, 1),
            "running": metric(text, "num_requests_running"),
            "waiting": metric(text, "num_requests_waiting"),
            "kv_used_share": metric(text, "kv_cache_usage_perc"),
            "generation_tokens": metric(text, "generation_tokens_total"),
            "preemptions": metric(text, "num_preemptions_total"),
        }
        if self.server is not None:
            for name, pid in (("server", self.server.pid), ("engine", self.server.engine_pid)):
                sample[f"{name}_mib"] = round(resident_mib(pid), 2)
                sample[f"{name}_files"] = open_files(pid)
        self.samples.append(sample)
        return sample

    async def keep_sampling(self, seconds: float) -> None:
        """Take samples at equal distances, until cancelled."""
        while True:
            await asyncio.sleep(max(INTERVAL_S, seconds / MOST_SAMPLES))
            await self.sample()

    async def is_idle(self) -> bool:
        """Return whether no request runs or waits and no block is in use."""
        last = await self.sample()
        self.samples.pop()
        return last["running"] == last["waiting"] == last["kv_used_share"] == 0

    def told(self) -> str:
        """Return the last sample in words."""
        last = self.samples[-1]
        memory = f", server {last['server_mib']:.0f} MiB, engine {last['engine_mib']:.0f} MiB" if self.server else ""
        blocks = f"{last['kv_used_share']:.0%} of the blocks in use"
        return f"{last['running']:g} running, {last['waiting']:g} waiting, {blocks}{memory}"


def leaks(samples: Sequence[Sample], started: Sample, ended: Sample) -> list[str]:
    """Return what has not come back to where it started, in words."""
    found = []
    if ended["kv_used_share"] > started["kv_used_share"]:
        found.append(f"{ended['kv_used_share']:.2%} of the KV blocks are still in use")
    for name in ("server", "engine"):
        if f"{name}_files" in started and ended[f"{name}_files"] > started[f"{name}_files"] + ALLOWED_FILES:
            found.append(f"{name}: {ended[f'{name}_files']:g} open files, {started[f'{name}_files']:g} at the start")
        memory = [sample[f"{name}_mib"] for sample in samples if f"{name}_mib" in sample]
        growth = memory_growth(memory)
        if growth is not None and growth > ALLOWED_GROWTH_MIB + ALLOWED_GROWTH * median(memory):
            found.append(f"{name}: {growth:.1f} MiB more at the end than when it was warm")
    return found


def memory_growth(memory: Sequence[float]) -> float | None:
    """Return by how much the memory late in a run is above that of a warm server; None: too few samples to tell."""
    warm = memory[int(len(memory) * SETTLED_AT) : int(len(memory) * SETTLED_UNTIL)]
    late: Any = memory[int(len(memory) * LATE_FROM) :]
    return median(late) - median(warm) if len(warm) > 2 else None
