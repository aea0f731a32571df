"""Faults of clients that take places: they read slowly or not at all, say half of what they have to, come in crowds."""

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
from fault_setting import Findings, Setting, Wire, answers_as_before, dropped, eventually, post, status_of, wire
from served import Server, metric, open_files, resident_mib

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
SPARE_FILES = 8


async def slow_readers(setting: Setting) -> Findings:
    """Eight clients ask for megabytes and read nothing; another reads slowly but steadily; others ask as usual."""
    found, count, patience = Findings(), 8, setting.client_timeout_s
    with setting.serving("--client-timeout-s", str(patience)) as server:
        before = resident_mib(server.pid)
        async with contextlib.AsyncExitStack() as resources:
            idle = [await resources.enter_async_context(wire(server.url, receive_bytes=4096)) for _ in range(count)]
            steady = await resources.enter_async_context(wire(server.url, receive_bytes=65536))
            question = post("/v1/completions", _long_answer(server))
            for one in (*idle, steady):
                await one.send(question)
            reading = asyncio.create_task(_read_steadily(steady, patience))
            ordinary = await asyncio.to_thread(answers_as_before, server.url)
            found.client(ordinary, "others were answered meanwhile")
            all_gone = await asyncio.to_thread(
                eventually, lambda: dropped(server.url, "slow_reader") == count, within_s=300
            )
            found.client(all_gone, f"those who read nothing for {patience:g} s were cut off, counted as slow_reader")
            found.client(await reading, "the steady reader got its whole answer, however slowly")
            found.figures["server_mib_more_while_they_waited"] = round(resident_mib(server.pid) - before, 1)
        idle_again = await asyncio.to_thread(eventually, lambda: _is_idle(server), within_s=10)
        found.afterwards(idle_again, "their requests ended, their blocks and places were free")
        found.check(not server.faults_in_log, "the log held no error")
    return found


async def half_open_connections(setting: Setting) -> Findings:
    """Clients connect and say nothing, or half a head, or half a body, or half of a second request, and wait."""
    found, each, patience = Findings(), setting.size(200, 10), setting.client_timeout_s
    started = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" + b'{"prompt": '
    beginnings = [b"", GET, started, GET + b"\r\n" + GET]
    with setting.serving("--client-timeout-s", str(patience)) as server:
        files = open_files(server.pid)
        async with contextlib.AsyncExitStack() as resources:
            waiting: list[Wire] = []
            for beginning in beginnings * each:
                waiting.append(await resources.enter_async_context(wire(server.url)))
                await waiting[-1].send(beginning)
            began = time.monotonic()
            found.client(await asyncio.to_thread(answers_as_before, server.url), "others were answered meanwhile")
            ends = await asyncio.gather(*(one.receive() for one in waiting))
            _told_and_closed(ends, began, patience, found)
        await _files_back(server, files, found)
    return found


async def bodies_in_drops(setting: Setting) -> Findings:
    """Clients send a body byte by byte, each well within the time for the next part, or headers behind one."""
    found, each, patience = Findings(), setting.size(200, 10), setting.client_timeout_s
    post_head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    announced = post_head + b"Content-Length: 100000\r\n\r\n"
    trailers = post_head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    limit = 4 * patience
    with setting.serving("--client-timeout-s", str(patience), "--body-timeout-s", str(limit)) as server:
        files = open_files(server.pid)
        async with contextlib.AsyncExitStack() as resources:
            began = time.monotonic()
            dropping = []
            for beginning in [announced, trailers] * each:
                one = await resources.enter_async_context(wire(server.url))
                await one.send(beginning)
                dropping.append(asyncio.create_task(_send_in_drops(one, patience / 5)))
            found.client(await asyncio.to_thread(answers_as_before, server.url), "others were answered meanwhile")
            ends = await asyncio.gather(*dropping)
            _told_and_closed(ends, began, limit, found)
        await _files_back(server, files, found)
    return found


def _told_and_closed(ends: Sequence[bytes], began: float, limit_s: float, found: Findings) -> None:
    """Find whether all who were too slow were told so; ``ends``: what each was sent until its connection closed."""
    found.figures["connections"] = len(ends)
    found.figures["seconds_until_all_were_closed"] = round(time.monotonic() - began, 1)
    told = sum(b"HTTP/1.1 408" in end for end in ends)
    found.client(told == len(ends), f"each got 408 after {limit_s:g} s and was closed, as slow_request")


async def _files_back(server: Server, files: int, found: Findings) -> None:
    """Find whether the server has no more open files than the ``files`` of before, and its log no error."""
    back = await asyncio.to_thread(eventually, lambda: open_files(server.pid) <= files + SPARE_FILES, within_s=10)
    found.afterwards(back, "every file descriptor was free again")
    found.check(not server.faults_in_log, "the log held no error")


async def many_connections(setting: Setting) -> Findings:
    """Ten thousand clients connect at once to a server that allows 4096, and each asks for /health."""
    count, allowed = setting.size(10_000, 200), setting.size(4096, 80)
    found = Findings()
    options = () if allowed == 4096 else ("--max-connections", str(allowed))
    with setting.serving(*options) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as early:
            await early.get("/health")
            statuses = await _crowd(server, count, found)
            ok, refused = statuses[200], statuses[503]
            found.client(ok >= allowed - SPARE_FILES, "as many as are allowed were answered")
            found.client(ok + refused == count, "every other got 503 with Retry-After, at once")
            response = await early.post("/v1/completions", json={"prompt": "One", "max_tokens": 2})
            found.client(response.status_code == 200, "who was connected already was served all the time")
        await _all_back(server, found)
    return found


async def many_allowed_connections(setting: Setting) -> Findings:
    """Ten thousand clients connect at once to a server that allows as many, and each asks for /health."""
    count = setting.size(10_000, 200)
    found = Findings()
    with setting.serving("--max-connections", str(count + 100)) as server:
        statuses = await _crowd(server, count, found)
        found.client(statuses[200] == count, "every one of them was answered")
        await _all_back(server, found)
    return found


async def _crowd(server: Server, count: int, found: Findings) -> Counter[int]:
    """Connect so many clients and have each ask once they all are there; return how many got which status."""
    _allow_files(count)
    before = resident_mib(server.pid)
    async with contextlib.AsyncExitStack() as resources:
        began = time.monotonic()
        crowd = [await resources.enter_async_context(wire(server.url)) for _ in range(count)]
        found.figures["seconds_to_connect"] = round(time.monotonic() - began, 1)
        statuses = await asyncio.gather(*(_ask_for_health(one) for one in crowd))
        found.figures["seconds_in_all"] = round(time.monotonic() - began, 1)
        found.figures["server_mib_more"] = round(resident_mib(server.pid) - before, 1)
    counted = Counter(statuses)
    found.figures |= {f"status_{status}" if status else "no_answer": number for status, number in counted.items()}
    return counted


async def _ask_for_health(one: Wire) -> int:
    await one.send(GET + b"\r\n")
    received = await one.receive(to_the_end=False)
    status = status_of(received)
    return status if status != 503 or b"retry-after" in received.lower() else -503


async def _all_back(server: Server, found: Findings) -> None:
    few = await asyncio.to_thread(eventually, lambda: open_files(server.pid) < 100, within_s=30)
    found.afterwards(few, "when they had gone every file descriptor was free")
    found.afterwards(await asyncio.to_thread(answers_as_before, server.url), "new clients were answered")
    found.check(not server.faults_in_log, "the log held no error")


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))


def _long_answer(server: Server) -> dict[str, Any]:
    """Return a question whose answer has some megabytes, soon: the prompt's own log-probabilities, several times."""
    model = httpx.get(f"{server.url}/v1/models").json()["data"][0]
    length = min(1200, model["max_model_len"] - 16)
    prompt = [2 + number % 200 for number in range(length)]
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 1, "seed": 1, "echo": True, "logprobs": 20}
    return body | {"n": -(-4000 // length), "stream": True}


async def _read_steadily(one: Wire, patience: float) -> bool:
    """Read a few kilobytes several times within what a server has patience for; return whether the answer was whole."""
    received = b""
    while b"data: [DONE]" not in received[-2000:]:
        data = await one.receive(to_the_end=False)
        if not data:
            return False
        received += data
        await asyncio.sleep(patience / 20 if len(received) < 1_000_000 else 0)
    return True


async def _send_in_drops(one: Wire, every_s: float) -> bytes:
    """Send a byte now and then until the server closes the connection; return what it said."""
    answer = asyncio.create_task(one.receive())
    while not (await asyncio.wait({answer}, timeout=every_s))[0]:
        await one.send(b"a")
    return answer.result()


def _is_idle(server: Server) -> bool:
    text = httpx.get(f"{server.url}/metrics").text
    names: Sequence[str] = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return all(metric(text, name) == 0 for name in names)
