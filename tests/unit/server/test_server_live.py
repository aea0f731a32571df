"""One poll for everyone who watches, none for nobody, and slow viewers that skip instead of holding others up."""

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from scripted_core import record

from legato.engine import wire
from legato.errors import EngineDeadError
from legato.observability.live_view import LiveView, live_view
from legato.observability.records import StepLog
from legato.observability.stats import EngineStats
from legato.server.live import INTERVAL_S as INTERVAL_S_SERVED
from legato.server.live import PENDING_EVENTS, POLLS_PER_REPORT, ROWS_PER_POLL, Broadcaster

INTERVAL_S = 0.002


@dataclass
class CountingEngine:
    """Takes ``steps_per_poll`` steps between two looks, and counts the looks."""

    steps_per_poll: int = 2
    polls: int = 0
    dies_at_poll: int | None = None
    log: StepLog = field(default_factory=StepLog)

    async def live_view(self, *, seen: int, most: int) -> LiveView:
        if self.polls == self.dies_at_poll:
            raise EngineDeadError("the engine process has ended")
        self.polls += 1
        for _ in range(self.steps_per_poll):
            self.log.add(record(self.log.num_records + 1, 1))
        replays = {"full 16": self.log.num_records, "full 32": 7}
        return live_view(EngineStats(graph_replays=replays), self.log, seen=seen, most=most)

    async def graph_report(self) -> dict[str, object]:
        return {"policy": "full", "catalog": []}


def parsed(data: bytes) -> list[tuple[str, dict]]:
    events = []
    for part in data.decode().split("\n\n")[:-1]:
        name, value = part.split("\n")
        events.append((name.removeprefix("event: "), json.loads(value.removeprefix("data: "))))
    return events


async def read(live: Broadcaster, ticks: int) -> list[tuple[str, dict]]:
    """Watch until so many ticks have come."""
    events: list[tuple[str, dict]] = []
    async with aclosing(live.watch()) as stream:
        async for data in stream:
            events += parsed(data)
            if sum(name == "tick" for name, _ in events) >= ticks:
                break
    return events


def steps_of(events: list[tuple[str, dict]]) -> list[int]:
    return [row[0] for name, value in events if name in ("snapshot", "tick") for row in value["steps"]]


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def test_ten_viewers_cost_the_engine_one_poll():
    engine = CountingEngine()

    async def watch():
        live = Broadcaster(engine, interval_s=INTERVAL_S)
        return await asyncio.gather(*(read(live, 10) for _ in range(10)))

    seen = run(watch())
    assert all(events == seen[0] for events in seen)
    assert engine.polls <= 12


def test_nobody_watching_means_no_poll():
    engine = CountingEngine()

    async def watch():
        live = Broadcaster(engine, interval_s=INTERVAL_S)
        await asyncio.sleep(10 * INTERVAL_S)
        assert engine.polls == 0
        await read(live, 3)
        polls = engine.polls
        await asyncio.sleep(10 * INTERVAL_S)
        assert (engine.polls, live.num_viewers) == (polls, 0)
        return await read(live, 1)

    events = run(watch())
    assert [name for name, _ in events[:2]] == ["graphs", "snapshot"], "who comes later is told everything again"


def test_every_step_is_shown_once_and_in_order():
    steps = steps_of(run(read(Broadcaster(CountingEngine(), interval_s=INTERVAL_S), 5)))
    assert steps == list(range(1, len(steps) + 1))


def test_of_more_steps_than_can_be_shown_the_newest_are_and_the_others_are_counted():
    engine = CountingEngine(steps_per_poll=ROWS_PER_POLL + 44)
    events = run(read(Broadcaster(engine, interval_s=INTERVAL_S), 1))
    [tick] = [value for name, value in events if name == "tick"]
    assert (len(tick["steps"]), tick["missed"]) == (ROWS_PER_POLL, 44)
    assert tick["steps"][-1][0] == 2 * engine.steps_per_poll


def test_a_tick_names_only_the_replays_that_changed():
    events = run(read(Broadcaster(CountingEngine(), interval_s=INTERVAL_S), 1))
    [whole] = [value for name, value in events if name == "snapshot"]
    [tick] = [value for name, value in events if name == "tick"]
    assert whole["stats"]["graph_replays"] == {"full 16": 2, "full 32": 7}
    assert tick["stats"]["graph_replays"] == {"full 16": 4}


def test_a_slow_viewer_skips_and_is_then_sent_the_whole_state():
    engine = CountingEngine()

    async def watch():
        live = Broadcaster(engine, interval_s=INTERVAL_S)
        async with aclosing(live.watch()) as slow:
            parsed(await anext(slow))
            fast = await read(live, PENDING_EVENTS + 5)
            caught_up = parsed(await anext(slow))
            after = parsed(await anext(slow))
        return fast, caught_up, after

    fast, caught_up, after = run(watch())
    assert steps_of(fast) == list(range(1, len(steps_of(fast)) + 1)), "a slow one holds nobody up"
    assert [name for name, _ in caught_up] == ["graphs", "snapshot"]
    together = steps_of(caught_up + after)
    assert together == list(range(1, len(together) + 1))


def test_the_table_of_graphs_is_sent_again_only_when_it_has_changed():
    engine = CountingEngine()

    async def watch():
        live = Broadcaster(engine, interval_s=0)
        before = await read(live, POLLS_PER_REPORT + 2)

        async def other_report():
            return {"policy": "none", "catalog": []}

        engine.graph_report = other_report
        return before, await read(live, POLLS_PER_REPORT + 2)

    before, after = run(watch())
    assert [value["policy"] for name, value in before if name == "graphs"] == ["full"]
    assert [value["policy"] for name, value in after if name == "graphs"] == ["none"]


@pytest.mark.parametrize("dies_at_poll", [0, 3])
def test_viewers_are_told_that_the_engine_has_ended_and_their_streams_end(dies_at_poll):
    live = Broadcaster(CountingEngine(dies_at_poll=dies_at_poll), interval_s=INTERVAL_S)
    events = run(read(live, 100))
    assert events[-1] == ("ended", {"error": "the engine process has ended"})


def test_a_slow_viewer_and_a_late_one_are_told_of_the_end_too():
    engine = CountingEngine(dies_at_poll=PENDING_EVENTS + 5)

    async def watch():
        live = Broadcaster(engine, interval_s=INTERVAL_S)
        async with aclosing(live.watch()) as slow:
            parsed(await anext(slow))
            fast = await read(live, 10**6)
            return fast, parsed(b"".join([data async for data in slow])), await read(live, 1)

    fast, slow, late = run(watch())
    assert [name for name, _ in slow] == ["graphs", "snapshot", "ended"], "it was behind when the engine ended"
    assert fast[-1] == slow[-1] == late[-1] == ("ended", {"error": "the engine process has ended"})


def test_closing_ends_every_stream_and_lets_none_begin():
    async def watch():
        live = Broadcaster(CountingEngine(), interval_s=INTERVAL_S)
        watching = [asyncio.ensure_future(read(live, 10**6)) for _ in range(3)]
        await asyncio.sleep(5 * INTERVAL_S)
        live.close()
        await asyncio.gather(*watching)
        return await read(live, 1)

    assert run(watch()) == []


def test_a_view_of_a_log_has_what_came_after_the_last_look():
    log = StepLog(capacity=4)
    for number in range(1, 7):
        log.add(record(number, 1))
    view = live_view(EngineStats(), log, seen=4, most=10)
    assert ([one.step for one in view.records], view.num_records) == ([5, 6], 6)
    assert [one.step for one in live_view(EngineStats(), log, seen=0, most=10).records] == [3, 4, 5, 6]
    assert live_view(EngineStats(), log, seen=6, most=10).records == ()


def test_a_poll_takes_the_engine_less_than_a_hundredth_of_the_time_between_two():
    log = StepLog()
    for number in range(ROWS_PER_POLL):
        log.add(record(number, 8))
    stats = EngineStats(
        graph_replays={f"round/full tokens={size} reqs={size} query_len=1": size for size in range(300)}
    )

    def asked() -> bytes:
        return wire.encode(wire.LiveReply(1, live_view(stats, log, seen=0, most=ROWS_PER_POLL)))

    assert seconds_of(asked) < INTERVAL_S_SERVED / 100


def seconds_of(work) -> float:
    """Processor seconds of the fastest of a few runs, so that what else the machine does is left out."""

    def timed() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(timed() for _ in range(10))
