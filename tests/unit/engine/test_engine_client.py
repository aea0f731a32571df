import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
import zmq
from scripted_core import CRASH_TOKEN, REFUSED_TOKEN

from legato.config.options import EngineOptions
from legato.engine import wire
from legato.engine.engine_client import LAST_TOKENS_S, UPDATES_AT_ONCE, EngineClient
from legato.errors import EngineDeadError, RequestError, WeightsError
from legato.flow.request import Request
from legato.flow.request_update import FinishReason
from legato.flow.sampling_params import SamplingParams

SUPPORT = Path(__file__).parents[2] / "support"
FACTORY = "scripted_core:build"


def a_request(request_id: str, *, prompt=(10, 11), max_tokens=3) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens),
        seed=0,
        stop_token_ids=frozenset({0}),
        max_tokens=max_tokens,
        arrival=0.0,
    )


def with_client(body, *, model="scripted", step_s="0.002"):
    """Run ``body(client)`` against a started engine process, and end the process."""

    async def run():
        with patch.dict(os.environ, SCRIPTED_STEP_S=step_s):
            client = await EngineClient.start(EngineOptions(model=model), factory=FACTORY)
        try:
            return await asyncio.wait_for(body(client), 120)
        finally:
            await client.shutdown()

    return asyncio.run(run())


async def collect(stream) -> list:
    return [update async for updates in stream for update in updates]


def test_requests_answers_and_queries_cross_the_process_border():
    async def body(client):
        one, two = client.submit([a_request("a"), a_request("b")]), client.submit([a_request("c", max_tokens=200)])
        updates = await collect(one)
        assert [u.token_ids for u in updates if u.request_id == "a"] == [(12,), (13,), (14,)]
        assert [u.finish_reason for u in updates if u.request_id == "b"] == [None, None, FinishReason.LENGTH]
        client.abort(two.request_ids)
        stats = await client.stats()
        assert (stats.num_running, stats.graph_bytes) == (0, 4096)
        records = await client.step_records(2)
        assert [record.step for record in records] == sorted(record.step for record in records)
        assert len(records) == 2
        assert (await client.graph_report())["policy"] == "full"
        assert client.config.model.eos_token_ids == (0,)
        assert client.num_open == 0

    with_client(body)


def test_others_have_their_turn_while_the_updates_of_a_step_are_handed_out():
    turns, seen = 0, []

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read(stream):
        async for updates in stream:
            seen.extend([turns] * len(updates))

    async def body(client):
        counting = asyncio.create_task(count_turns())
        streams = [client.submit([a_request(f"r{number}", max_tokens=6)]) for number in range(2 * UPDATES_AT_ONCE)]
        await asyncio.gather(*map(read, streams))
        counting.cancel()

    with_client(body, step_s="0.05")
    assert max(Counter(seen).values()) == UPDATES_AT_ONCE


def test_a_stream_that_is_behind_gets_the_tokens_of_several_steps_at_once():
    async def body(client):
        streams = [client.submit([a_request(f"r{number}", max_tokens=200)]) for number in range(2 * UPDATES_AT_ONCE)]
        for stream in streams:
            await anext(stream)
        time.sleep(0.3)  # holds the event loop up, while the engine goes on
        for stream in streams:
            # What came before the loop was held up, if it has not been read, and what came since.
            assert max(len(await anext(stream)), len(await anext(stream))) >= 10
            client.abort(stream.request_ids)

    with_client(body, step_s="0.005")


def test_a_question_given_up_while_its_answer_is_read_harms_nothing():
    async def body(client):
        for turns in range(
            12
        ):  # of the loop, after the answer has arrived: in one of them it is read as the question is dropped
            question = asyncio.create_task(client.stats())
            await asyncio.sleep(0)
            time.sleep(0.02)
            for _ in range(turns):
                await asyncio.sleep(0)
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)
        assert (await client.stats()).num_running == 0

    with_client(body)


def test_a_refused_request_raises_what_the_core_raised_and_harms_no_other():
    async def body(client):
        refused, good = client.submit([a_request("a", prompt=(REFUSED_TOKEN,))]), client.submit([a_request("b")])
        with pytest.raises(RequestError, match="refuses this prompt") as caught:
            await collect(refused)
        assert caught.value.param == "prompt"
        assert len(await collect(good)) == 3
        with pytest.raises(UnicodeEncodeError):
            client.submit([a_request("half of a pair: \ud800")])
        assert (client.error, client.num_open) == (None, 0)

    with_client(body)


@pytest.mark.parametrize(
    ("model", "error", "text"),
    [("broken", WeightsError, "lm_head is missing"), ("bug", EngineDeadError, "ZeroDivisionError: a plain bug")],
)
def test_an_error_while_starting_arrives_as_what_it_was(model, error, text):
    with pytest.raises(error, match=text):
        with_client(None, model=model)


def test_a_process_that_ends_before_it_speaks_is_an_error_and_not_a_wait(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(EngineDeadError, match="exit code 1"):
        with_client(None)


@pytest.fixture
def engine_that(monkeypatch, tmp_path):
    """Put a script in the place of every engine process; its fourth argument is the address."""
    interpreter = sys.executable

    def replace(*lines):
        script = tmp_path / "engine"
        script.write_text("\n".join((f"#!{interpreter} -SE", "import os, signal, sys", *lines)) + "\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))

    return replace


def test_the_last_word_of_a_process_counts_though_its_end_is_noticed_first(engine_that, tmp_path):
    address = tmp_path / "address"
    engine_that(
        f"open('{address}.part', 'w').write(sys.argv[4])",
        f"os.rename('{address}.part', '{address}')",
        f"sys.exit({wire.FATAL_CODE})",
    )

    async def run():
        starting = asyncio.create_task(EngineClient.start(EngineOptions(), factory=FACTORY))
        while not address.exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(3 * LAST_TOKENS_S)
        with zmq.Context() as context, context.socket(zmq.DEALER) as process:
            process.connect(address.read_text())
            process.send(wire.encode(wire.Fatal(wire.ErrorReport.of(WeightsError("lm_head is missing")))))
            with pytest.raises(WeightsError, match="lm_head is missing"):
                await starting

    asyncio.run(run())


def test_a_loop_that_ends_just_after_the_process_waits_for_nothing_that_it_has_cancelled(engine_that, tmp_path):
    began = tmp_path / "began"
    engine_that(f"os.mkdir({str(began)!r})", f"sys.exit({wire.FATAL_CODE})")

    async def run():
        starting = asyncio.create_task(EngineClient.start(EngineOptions(), factory=FACTORY))
        while not began.exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(3 * LAST_TOKENS_S)  # the end is noticed, and a last word waited for
        return starting

    assert asyncio.run(run()).cancelled()


def test_signals_are_held_back_from_a_process_that_has_not_yet_left_them_to_its_parent(engine_that, tmp_path):
    held = tmp_path / "held"
    engine_that(
        f"open({str(held)!r}, 'w').write(repr(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))))",
        "sys.exit(1)",
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(EngineDeadError):
        with_client(None)
    assert {int(signal.SIGINT), int(signal.SIGTERM)} <= set(json.loads(held.read_text()))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_signal_without_a_name_is_told_by_its_number(engine_that):
    engine_that("os.kill(os.getpid(), 40)")
    with pytest.raises(EngineDeadError, match="signal 40"):
        with_client(None)


def test_cancelling_the_start_ends_the_process():
    async def run():
        others = children()
        starting = asyncio.create_task(EngineClient.start(EngineOptions(), factory="slow_core:build"))
        await asyncio.sleep(0)  # the process is begun before anything is waited for
        [engine] = children() - others
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not alive(engine)

    asyncio.run(run())


def children() -> set[int]:
    pid = os.getpid()
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if alive(int(child))}


def test_a_killed_process_ends_all_requests_soon():
    async def body(client):
        streams = [client.submit([a_request(str(number), max_tokens=200)]) for number in range(3)]
        await anext(streams[0])
        os.kill(client.pid, signal.SIGKILL)
        async with asyncio.timeout(5):  # a fraction of a second as a rule
            for stream in streams:
                with pytest.raises(EngineDeadError, match="SIGKILL"):
                    await collect(stream)
        assert client.error is not None
        with pytest.raises(EngineDeadError):
            client.submit([a_request("late")])
        with pytest.raises(EngineDeadError):
            await client.stats()

    with_client(body, step_s="0.1")


def test_an_error_in_a_step_reaches_every_open_request():
    async def body(client):
        other, crash = (
            client.submit([a_request("a", max_tokens=200)]),
            client.submit([a_request("b", prompt=(CRASH_TOKEN,))]),
        )
        for stream in (other, crash):
            with pytest.raises(EngineDeadError, match="met the crash token"):
                await collect(stream)

    with_client(body)


def test_draining_finishes_what_runs_and_takes_nothing_new():
    async def body(client):
        running = client.submit([a_request("a", max_tokens=20)])
        ending = asyncio.create_task(client.shutdown(drain=True, timeout_s=60))
        assert len(await collect(running)) == 20
        with pytest.raises(EngineDeadError, match="shutting down"):
            client.submit([a_request("b")])
        await ending
        assert client.error is None

    with_client(body)


def test_a_drain_that_takes_too_long_is_cut():
    async def body(client):
        running = client.submit([a_request("a", max_tokens=200)])
        await client.shutdown(drain=True, timeout_s=0.2)
        with pytest.raises(EngineDeadError):
            await collect(running)

    with_client(body, step_s="0.1")


def test_the_process_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio, sys, time
            sys.path.insert(0, {str(SUPPORT)!r})
            from legato.config.options import EngineOptions
            from legato.engine.engine_client import EngineClient

            async def main():
                client = await EngineClient.start(EngineOptions(), factory={FACTORY!r})
                print(client.pid, flush=True)
                await asyncio.sleep(60)

            asyncio.run(main())
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
