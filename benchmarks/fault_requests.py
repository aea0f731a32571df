"""Faults of single requests: bodies and headers without measure, and bytes that are no text."""

import asyncio
import json
import os
import time

import httpx
from fault_setting import Findings, Setting, Wire, answers_as_before, dropped, longest_wait, status_of, wire
from served import resident_mib

PART = b"a" * (1 << 16)
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
MIB = 1 << 20
SETTLE_S = 3.0


async def large_bodies(setting: Setting) -> Findings:
    """Bodies of 50 MB, announced and not, one and ten at once; then forty at once just within 16 MiB."""
    found, content = Findings(), b"a" * setting.size(50_000_000, 17_000_000)
    with setting.serving() as server:
        before = resident_mib(server.pid)
        for announced in (True, False):
            received = await _upload(server.url, content, announced=announced)
            how = "announced" if announced else "sent in chunks without a length"
            found.client(status_of(received) == 413, f"one that was {how} got 413")
        several = asyncio.gather(*(_upload(server.url, content) for _ in range(setting.size(10, 3))))
        found.figures["longest_wait_of_others_seconds"] = round(await longest_wait(server.url, several), 2)
        found.client({status_of(one) for one in await several} == {413}, "ten at once got 413 each")
        found.figures["server_mib_more_after_50_mb"] = round(resident_mib(server.pid) - before, 1)
        content = json.dumps({"prompt": "a" * (16 * MIB - 100)}).encode()
        within = asyncio.gather(*(_upload(server.url, content) for _ in range(setting.size(40, 20))))
        longest = await longest_wait(server.url, within)
        found.figures["longest_wait_of_others_seconds_within_the_limit"] = round(longest, 2)
        statuses = [status_of(one) for one in await within]
        found.figures |= {f"within_the_limit_{status}": statuses.count(status) for status in set(statuses)}
        found.client(
            set(statuses) <= {400, 503} and 400 in statuses,
            "those within the limit got 400 for a prompt too long for any model, or 503 beyond what is held together",
        )
        found.figures["server_mib_more_right_after_16_mib"] = round(resident_mib(server.pid) - before, 1)
        await asyncio.sleep(SETTLE_S)
        found.figures["server_mib_more_in_the_end"] = round(resident_mib(server.pid) - before, 1)
        found.afterwards(answers_as_before(server.url), "others were answered meanwhile and afterwards")
        found.check(not server.faults_in_log, "the log held no error")
    return found


async def header_floods(setting: Setting) -> Findings:
    """Twenty clients each: one header, many headers, or a path without end, trailers without end, piled-up requests."""
    found, count = Findings(), setting.size(20, 3)
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    floods = {
        "one header": (GET + b"A: ", PART),
        "many headers": (GET, b"a: b\r\n" * 10_000),
        "a path": (b"GET /", PART),
        "trailers": (chunked, b"a: b\r\n" * 10_000),
    }
    with setting.serving() as server:
        before, began = resident_mib(server.pid), time.monotonic()
        for name, (start, part) in floods.items():
            flooding = asyncio.gather(*(_flood(server.url, start, part) for _ in range(count)))
            wait = await longest_wait(server.url, flooding)
            found.figures["longest_wait_of_others_seconds"] = round(
                max(wait, found.figures.get("longest_wait_of_others_seconds", 0.0)), 2
            )
            statuses = [status_of(one) for one in await flooding]
            found.check(set(statuses) == {431}, f"{name}: {sorted(set(statuses))} instead of 431")
        found.client(
            dropped(server.url, "large_head") == count * len(floods), "each got 431 after 64 KiB, or soon after"
        )
        piled = await asyncio.gather(*(_flood(server.url, b"", (GET + b"\r\n") * 1000, times=1) for _ in range(count)))
        found.client(
            dropped(server.url, "too_many_pipelined") == count and all(len(one) < MIB for one in piled),
            "a thousand requests behind one another ended at the seventeenth that had to wait",
        )
        found.figures["server_mib_more"] = round(resident_mib(server.pid) - before, 1)
        found.figures["seconds_for_all_floods"] = round(time.monotonic() - began, 1)
        found.afterwards(answers_as_before(server.url), "others were answered meanwhile and afterwards")
        found.check(not server.faults_in_log, "the log held no error")
    return found


async def invalid_text(setting: Setting) -> Findings:
    """Bytes that are no UTF-8 in body, path, query, a header and the key; then 2000 connections that send noise."""
    found = Findings()
    body = b'{"prompt": "\xff\xfe\xc3("}'
    cases = {
        "body": (POST + b"Content-Length: %d\r\n\r\n" % len(body) + body, 400),
        "a lone surrogate": (POST + b'Content-Length: 20\r\n\r\n{"prompt": "\\ud800"}', 400),
        "path": (b"GET /v1/models/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        "path, escaped": (b"GET /v1/models/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        "query": (b"GET /debug/steps?n=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        "header": (GET + b"A: \xff\xfe\r\n\r\n", 200),
        "key": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\r\n\r\n", 401),
    }
    with setting.serving("--api-key", "a key") as server:
        for name, (sent, expected) in cases.items():
            with_key = (
                sent
                if name in ("key", "header")
                else sent.replace(b"Host: localhost\r\n", b"Host: localhost\r\nAuthorization: Bearer a key\r\n", 1)
            )
            async with wire(server.url) as one:
                await one.send(with_key)
                status = status_of(await one.receive(to_the_end=False))
                found.check(status == expected, f"{name}: {status} instead of {expected}")
        found.saw.append(
            "400 for the body and a bare path, 404 for an escaped one, 401 for the key; a header is passed over"
        )
        noise = await asyncio.gather(*(_noise(server.url) for _ in range(setting.size(2000, 50))))
        found.client(set(noise) <= {400, 431}, "noise got 400, malformed")
        headers = {"Authorization": "Bearer a key"}
        response = httpx.post(f"{server.url}/v1/completions", json={"prompt": "One", "max_tokens": 2}, headers=headers)
        found.afterwards(response.status_code == 200, "others were answered afterwards")
        found.check(not server.faults_in_log, "the log held no error")
    return found


async def _upload(url: str, content: bytes, *, announced: bool = True) -> bytes:
    """Send a body as fast as the server takes it; return what the server says."""
    length = b"Content-Length: %d\r\n\r\n" % len(content) if announced else b"Transfer-Encoding: chunked\r\n\r\n"
    async with wire(url) as one:
        await one.send(POST + length)
        answer = asyncio.create_task(one.receive(to_the_end=False))
        for start in range(0, len(content), len(PART)):
            part = content[start : start + len(PART)]
            if not await one.send(part if announced else b"%x\r\n%s\r\n" % (len(part), part)):
                break
        if not announced:
            await one.send(b"0\r\n\r\n")
        return await answer


async def _flood(url: str, start: bytes, part: bytes, *, times: int = 200) -> bytes:
    """Send without end, until the server no longer takes it; return what it says."""
    async with wire(url) as one:
        answer = asyncio.create_task(one.receive())
        await one.send(start)
        for _ in range(times):
            if not await one.send(part) or answer.done():
                break
        return await answer


async def _noise(url: str) -> int:
    async with wire(url) as one:
        await one.send(os.urandom(200) + b"\r\n\r\n")
        return await _first_status(one)


async def _first_status(one: Wire) -> int:
    return status_of(await one.receive(to_the_end=False))
