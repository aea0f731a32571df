import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from scripted_core import CRASH_TOKEN, REFUSED_TOKEN

from legato.config.options import EngineOptions
from legato.engine.engine_client import EngineClient
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
            return await asyncio.wait_for(body(client), 30)
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


def test_a_question_given_up_while_its_answer_is_read_harms_nothing():
    async def body(client):
        for turns in range(12):  # of the loop, after the answer has arrived: in one of them it is read as the question is dropped
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
        assert client.error is None

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
    start = time.monotonic()
    with pytest.raises(EngineDeadError, match="exit code 1"):
        with_client(None)
    assert time.monotonic() - start < 1


def test_cancelling_the_start_ends_the_process():
    async def run():
        others = children()
        starting = asyncio.create_task(EngineClient.start(EngineOptions(), factory="slow_core:build"))
        await asyncio.sleep(0.3)
        [engine] = children() - others
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not alive(engine)

    asyncio.run(run())


def children() -> set[int]:
    pid = os.getpid()
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if alive(int(child))}


def test_a_killed_process_ends_all_requests_within_a_second():
    async def body(client):
        streams = [client.submit([a_request(str(number), max_tokens=200)]) for number in range(3)]
        await anext(aiter(streams[0]))
        os.kill(client.pid, signal.SIGKILL)
        start = time.monotonic()
        for stream in streams:
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                await collect(stream)
        assert time.monotonic() - start < 1.0
        assert client.error is not None
        with pytest.raises(EngineDeadError):
            client.submit([a_request("late")])
        with pytest.raises(EngineDeadError):
            await client.stats()

    with_client(body, step_s="0.02")


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
        ending = asyncio.create_task(client.shutdown(drain=True, timeout_s=10))
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
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
