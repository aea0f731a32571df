"""Load: requests sent at their times, so many at once at most. Owns the clock of a run and what the client adds to it.

A client that is slow itself shows as a slow server. Two figures tell it apart: how much later than due each request was
sent, and how late the event loop came back to a timer that it was told of.
"""

import asyncio
import gc
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import uvloop

from legato.bench.serving.client import Client, Target
from legato.bench.serving.prompt import Prompt
from legato.bench.serving.record import RequestRecord

LAG_INTERVAL_S = 0.02
Progress = Callable[[int, int], None]
"""Told (ended, failed) whenever a request has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a run of requests left."""

    started: float
    seconds: float
    """To the end of the last request."""
    records: tuple[RequestRecord, ...]
    """In the order of their ends."""
    loop_lags_s: tuple[float, ...]
    """How late each timer of the event loop was."""
    unfinished: int = 0
    """Requests that were given up, or never sent, because the user broke the run off."""


def run_load(
    target: Target,
    prompts: Sequence[Prompt],
    send_times: Sequence[float],
    *,
    max_concurrency: int | None = None,
    progress: Progress = lambda *_: None,
) -> LoadResult:
    """Send each prompt at its time, in seconds from the start; Ctrl-C ends the run and gives what there is."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Load(target, progress, max_concurrency).run(prompts, send_times))


class _Places:
    """Places for requests at once; tells since when the one that is taken has been free."""

    def __init__(self, number: int, now: float) -> None:
        self._places = asyncio.Semaphore(number)
        self._free_since = deque([now] * number)

    async def take(self) -> float:
        await self._places.acquire()
        return self._free_since.popleft()

    def free(self) -> None:
        self._free_since.append(time.perf_counter())
        self._places.release()


class _Load:
    def __init__(self, target: Target, progress: Progress, max_concurrency: int | None) -> None:
        self._client = Client(target)
        self._progress = progress
        self._max_concurrency = max_concurrency
        self._records: list[RequestRecord] = []
        self._num_failed = 0

    async def run(self, prompts: Sequence[Prompt], send_times: Sequence[float]) -> LoadResult:
        requests = [self._client.written(prompt) for prompt in prompts]
        lags: list[float] = []
        with _undisturbed():
            started = time.perf_counter()
            watching = asyncio.ensure_future(_watch(lags))
            sending = asyncio.ensure_future(self._send_all(requests, send_times, started))
            with _ended_by_the_user(sending):
                await asyncio.wait({sending})
            watching.cancel()
        if not sending.cancelled():
            sending.result()  # an error of our own is not to be lost
        self._client.close()
        ended = max((record.ended for record in self._records), default=time.perf_counter())
        return LoadResult(
            started=started,
            seconds=ended - started,
            records=tuple(self._records),
            loop_lags_s=tuple(lags),
            unfinished=len(requests) - len(self._records),
        )

    async def _send_all(self, requests: Sequence[bytes], send_times: Sequence[float], started: float) -> None:
        places = _Places(min(self._max_concurrency or len(requests), len(requests)) or 1, started)
        async with asyncio.TaskGroup() as group:
            for request, send_time in zip(requests, send_times, strict=True):
                due = started + send_time
                while (left := due - time.perf_counter()) > 0:  # timers are rounded to milliseconds, down too
                    await asyncio.sleep(left)
                free_since = await places.take()
                group.create_task(self._ask(request, max(due, free_since), places))

    async def _ask(self, request: bytes, due: float, places: _Places) -> None:
        record = await self._client.ask(request, due=due)
        places.free()
        self._records.append(record)
        self._num_failed += record.failure is not None
        self._progress(len(self._records), self._num_failed)


async def _watch(lags: list[float]) -> None:
    """Note how late timers are, until cancelled."""
    while True:
        due = time.perf_counter() + LAG_INTERVAL_S
        await asyncio.sleep(LAG_INTERVAL_S)
        lags.append(max(0.0, time.perf_counter() - due))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the garbage collector from walking over what was made before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _ended_by_the_user(task: "asyncio.Future[None]") -> Iterator[None]:
    """Let the first Ctrl-C cancel ``task``; a second one ends the program. Only a main thread is told of signals."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end() -> None:
        task.cancel()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, end)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
