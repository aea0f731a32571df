"""What everyone who watches a running engine is sent. Owns the one poll that all viewers share; knows no HTTP.

While nobody watches, the engine is not asked. A viewer that reads slowly skips what it cannot keep up with and is sent
the whole state once it reads again.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from legato.observability.live_view import LiveView
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats

INTERVAL_S = 0.25
"""Between two polls. A few a second look alive; each costs the engine about as much as writing its answer."""
ROWS_PER_POLL = 256
"""Step records per poll at most: a thousand steps a second are shown, of more the newest."""
ROWS_KEPT = 512
POINTS_KEPT = 480
"""Two minutes."""
PENDING_EVENTS = 8
"""Events that wait for one viewer: two seconds, after which it skips."""
MOST_VIEWERS = 100
POLLS_PER_REPORT = 20
"""The table of graphs changes only where one is dropped."""

Row = tuple[int, str, str, str, str | None, str | None, int, int, int, float, float | None]
"""A step record's fields in their order, without their names."""
Point = tuple[int, int, int, int, int, int, int, int]
"""Milliseconds, running, waiting, KV blocks used, prefix queries and hits, prompt and generated tokens."""


class LiveSource(Protocol):
    """A running engine."""

    async def live_view(self, *, seen: int, most: int) -> LiveView:
        """Return the counts of now and the newest records; raises EngineDeadError."""
        ...

    async def graph_report(self) -> dict[str, Any]:
        """Return the graphs as JSON values; raises EngineDeadError."""
        ...


@dataclass(slots=True, eq=False)
class _Viewer:
    """One reader, and what waits for it."""

    pending: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    behind: bool = False
    """It is owed the whole state instead of what it missed."""


class Broadcaster:
    """Polls a source while anybody watches, and hands each event, encoded once, to everyone."""

    def __init__(self, source: LiveSource, *, interval_s: float = INTERVAL_S) -> None:
        self._source = source
        self._interval_s = interval_s
        self._viewers: set[_Viewer] = set()
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        self._stats: EngineStats | None = None
        self._seen = 0
        self._rows: deque[Row] = deque(maxlen=ROWS_KEPT)
        self._points: deque[Point] = deque(maxlen=POINTS_KEPT)
        self._report = b""
        self._last_word = b""
        """What ends every stream where the engine has ended."""

    @property
    def num_viewers(self) -> int:
        """Those who watch now."""
        return len(self._viewers)

    @property
    def full(self) -> bool:
        """Whether no further viewer is taken in."""
        return len(self._viewers) >= MOST_VIEWERS

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield events from now on, the whole state first; end when the engine does, or :meth:`close` is called."""
        viewer = _Viewer(behind=self._polling is not None and self._stats is not None)
        viewer.news.set()
        self._viewers.add(viewer)
        if self._polling is None and not self._closed:
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        try:
            while viewer.pending or viewer.behind or not self._closed:
                await viewer.news.wait()
                viewer.news.clear()
                while viewer.behind or viewer.pending:
                    yield self._next(viewer)
            if self._last_word:  # for a slow viewer and a late one too
                yield self._last_word
        finally:
            await self._leave(viewer)

    def close(self) -> None:
        """Let every stream end, and begin none."""
        self._closed = True
        if self._polling is not None:
            self._polling.cancel()
        for viewer in self._viewers:
            viewer.news.set()

    def _next(self, viewer: _Viewer) -> bytes:
        if viewer.behind:
            viewer.behind = False
            return self._report + self._snapshot()
        return viewer.pending.popleft()

    async def _leave(self, viewer: _Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and (polling := self._polling) is not None:
            self._polling = None
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling

    async def _poll(self) -> None:
        try:
            for number in range(1 << 62):
                if number % POLLS_PER_REPORT == 0:
                    self._publish_report(await self._source.graph_report())
                self._publish(await self._source.live_view(seen=self._seen, most=ROWS_PER_POLL), whole=number == 0)
                await asyncio.sleep(self._interval_s)
        except Exception as error:  # whatever it is, viewers hear of it instead of waiting for ever
            self._last_word = _event("ended", {"error": str(error)})
            self.close()

    def _publish_report(self, report: Mapping[str, Any]) -> None:
        event = _event("graphs", report)
        if event != self._report:
            self._report = event
            self._send(event)

    def _publish(self, view: LiveView, *, whole: bool) -> None:
        before, self._stats = self._stats, view.stats
        missed = max(0, view.num_records - self._seen - len(view.records))
        self._seen = view.num_records
        rows = [_row(record) for record in view.records]
        self._rows.extend(rows)
        point = _point(view.stats)
        self._points.append(point)
        if whole or before is None:
            for viewer in self._viewers:
                viewer.pending.clear()
                viewer.behind = True
                viewer.news.set()
            return
        stats = replace(view.stats, graph_replays=_changed(before.graph_replays, view.stats.graph_replays))
        self._send(_event("tick", {"point": point, "steps": rows, "missed": missed, "stats": stats}))

    def _snapshot(self) -> bytes:
        return _event("snapshot", {"points": list(self._points), "steps": list(self._rows), "stats": self._stats})

    def _send(self, event: bytes) -> None:
        for viewer in self._viewers:
            if viewer.behind:
                continue
            if len(viewer.pending) >= PENDING_EVENTS:
                viewer.pending.clear()
                viewer.behind = True
            else:
                viewer.pending.append(event)
            viewer.news.set()


def _row(record: StepRecord) -> Row:
    return (
        record.step,
        record.stage,
        record.requested,
        record.mode,
        record.reason,
        record.key,
        record.num_reqs,
        record.num_tokens,
        record.num_tokens_padded,
        round(record.host_us, 1),
        None if record.device_us is None else round(record.device_us, 1),
    )


def _point(stats: EngineStats) -> Point:
    return (
        int(time.time() * 1e3),
        stats.num_running,
        stats.num_waiting,
        stats.kv_blocks_used,
        stats.prefix_cache_queries,
        stats.prefix_cache_hits,
        stats.prompt_tokens,
        stats.generation_tokens,
    )


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in after.items() if before.get(name) != count}


def _event(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
