"""Faults of the engine and of its process: killed, out of blocks, out of memory, told to end."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import httpx
from fault_setting import READ_S, Findings, Setting, answers, answers_as_before, eventually, wire
from served import Server, metric

from legato.bench.serving.events import EventReader

PROMPTS = (
    "The captain of the ship looked at the sea and said that",
    "In the morning the river was blue and the garden was green because",
    "The teacher answered the question slowly, for the number was",
    "A letter from the island came before the winter, and in it",
    "The weather in the forest changed after the market had closed and",
    "Music is never quite as simple as it sounds through a window since",
)


async def killed_mid_stream(setting: Setting) -> Findings:
    """The engine's process is killed (SIGKILL) while it answers six streams and two whole requests."""
    found = Findings()
    with setting.serving("--dead-engine-grace-s", "3", "--max-num-seqs", "32") as server:
        streams, whole = _ask_much(server.url, n=4)
        await asyncio.gather(*(one.started.wait() for one in streams))
        os.kill(server.engine_pid, signal.SIGKILL)
        killed = time.monotonic()
        await asyncio.gather(*(one.ended for one in (*streams, *whole)))
        found.figures["seconds_until_all_had_ended"] = round(time.monotonic() - killed, 2)
        last = [one.events[-1] for one in streams]
        told = all(name == "error" and "SIGKILL" in text for name, text in last)
        found.client(told, "each stream ended with an error event that names the signal")
        found.check(told, f"the last events were {last}")
        refused = [one.status == 503 and "engine_dead" in one.text for one in whole]
        found.client(all(refused), "each whole request got 503, engine_dead")
        health = httpx.get(f"{server.url}/health")
        found.client(health.status_code == 503, "/health and new requests got 503 until the server ended")
        code = server.exit_code()
        found.afterwards(code == 1, "the server ended by itself with status 1, for its supervisor to start again")
    began = time.monotonic()
    with setting.serving() as server:
        found.afterwards(answers_as_before(server.url), "started again, it answered")
        found.figures["seconds_until_it_answered_again"] = round(time.monotonic() - began, 1)
    return found


async def out_of_blocks(setting: Setting) -> Findings:
    """Twelve requests at once need several times the blocks of the KV cache; one asks for more than any may have."""
    found = Findings()
    options = ["--dtype", "float32", "--max-model-len", "160", "--kv-cache-memory-bytes", str(setting.kv_bytes(14))]
    with setting.serving(*options) as server:
        fields = {"max_tokens": 64}
        prompts = [prompt[:90] for prompt in PROMPTS]
        alone = answers(server.url, prompts, **fields)
        asked = [asyncio.to_thread(answers, server.url, [prompt], **fields) for prompt in prompts * 2]
        together = [one for [one] in await asyncio.gather(*asked)]
        found.client(together == alone * 2, "every answer came, later than usual, and equal to the one given alone")
        body = {"prompt": "One", "max_tokens": 1000}
        refused = httpx.post(f"{server.url}/v1/completions", json=body, timeout=READ_S)
        found.client(refused.status_code == 400, "the request that can never fit got 400 with the limit, at once")
        text = httpx.get(f"{server.url}/metrics").text
        found.figures["preemptions"] = metric(text, "num_preemptions_total")
        found.check(found.figures["preemptions"] > 0, "requests lost their blocks and started again")
        found.afterwards(metric(text, "kv_cache_usage_perc") == 0, "no block was in use afterwards")
        found.afterwards(answers(server.url, prompts, **fields) == alone, "the same questions had the same answers")
    return found


async def out_of_memory_at_capture(setting: Setting) -> Findings:
    """Memory runs out in the capture of every graph of more than two tokens, as a GPU's allocator would tell it."""
    found = Findings()
    options = ("--graph-policy", "full_and_piecewise")
    with setting.serving(*options) as server:
        right = answers(server.url, PROMPTS)
    command = [sys.executable, str(Path(__file__).with_name("faulty_core.py"))]
    with setting.serving(*options, command=command) as server:
        report = httpx.get(f"{server.url}/debug/graphs", timeout=READ_S).json()
        dropped = [entry for entry in report["dropped"] if "out of memory" in entry["detail"]]
        found.figures |= {"graphs_dropped": len(dropped), "graphs_kept": len(report["catalog"])}
        found.check(bool(dropped) and bool(report["catalog"]), "the graphs that did not fit were dropped, no others")
        asked = [asyncio.to_thread(answers, server.url, [prompt]) for prompt in PROMPTS]
        together = [one for [one] in await asyncio.gather(*asked)]
        found.client(together == right, "the server started, and every answer was that of a server with all graphs")
        fallbacks = metric(httpx.get(f"{server.url}/metrics").text, "graph_fallbacks_total")
        found.afterwards(fallbacks > 0, "steps without their graph ran in the next mode, counted by reason")
        found.figures["steps_in_the_next_mode"] = fallbacks
    return found


async def told_to_end_under_load(setting: Setting) -> Findings:
    """SIGTERM while eight requests run and ten connections have sent half a head."""
    found = Findings()
    with setting.serving("--drain-timeout-s", "120", "--max-num-seqs", "8") as server:
        streams, whole = _ask_much(server.url)
        await asyncio.gather(*(one.started.wait() for one in streams))
        halves = [wire(server.url) for _ in range(10)]
        for half in halves:
            await (await half.__aenter__()).send(b"GET /health HTTP/1.1\r\n")
        server.signal(signal.SIGTERM)
        signalled = time.monotonic()
        refused = await asyncio.to_thread(eventually, lambda: not _connects(server), within_s=10)
        found.client(refused, "new connections were refused at once")
        await asyncio.gather(*(one.ended for one in (*streams, *whole)))
        complete = all(one.is_whole for one in (*streams, *whole))
        found.client(complete, "every request that ran got its whole answer")
        code = await asyncio.to_thread(server.exit_code)
        found.figures["seconds_until_it_had_ended"] = round(time.monotonic() - signalled, 2)
        found.afterwards(code == 0, "the server ended with status 0 and did not wait for the half-open connections")
        for half in halves:
            await half.__aexit__(None, None, None)
        found.afterwards(not server.faults_in_log, "its log held no error")
    return found


class _Asked:
    """A request under way, streamed or whole."""

    def __init__(self, url: str, prompt: str, *, stream: bool, n: int = 1) -> None:
        self._body = {"prompt": prompt, "max_tokens": 120, "ignore_eos": True, "seed": 1, "n": n, "stream": stream}
        self._url = f"{url}/v1/completions"
        self.started = asyncio.Event()
        """Its first event has come; a whole answer has none."""
        self.status = 0
        self.text = ""
        self.events: list[tuple[str, str]] = []
        self.ended = asyncio.create_task(self._read())

    @property
    def is_whole(self) -> bool:
        """Whether everything came."""
        last = ("message", "[DONE]") if self._body["stream"] else None
        return self.status == 200 and (last is None or self.events[-1:] == [last])

    async def _read(self) -> None:
        reader = EventReader()
        async with (
            httpx.AsyncClient(timeout=READ_S * 5) as client,
            client.stream("POST", self._url, json=self._body) as response,
        ):
            self.status = response.status_code
            async for data in response.aiter_raw():
                self.text += data.decode(errors="replace")
                self.events += [(name or "message", text.decode()) for name, text in reader.feed(data)]
                self.started.set()


def _ask_much(url: str, *, n: int = 1) -> tuple[list[_Asked], list[_Asked]]:
    """Ask for six streams and two whole answers."""
    streams = [_Asked(url, prompt, stream=True, n=n) for prompt in PROMPTS]
    return streams, [_Asked(url, prompt, stream=False, n=n) for prompt in PROMPTS[:2]]


def _connects(server: Server) -> bool:
    try:
        httpx.get(f"{server.url}/health", timeout=READ_S)
    except httpx.ConnectError:
        return False
    return True
