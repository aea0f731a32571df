"""A small HTTP server whose answers are scripts: what it sends, and when; for tests of clients."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CLOSE = object()
"""In a script: close the connection here."""
HEADERS = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


@dataclass
class ScriptedServer:
    """Answers the n-th POST by the n-th script, the last one for all that follow.

    A script holds bytes to send, seconds to wait, and CLOSE.
    """

    scripts: list[list[object]]
    metrics: list[str] = field(default_factory=list)
    """What /metrics says, one text per request."""
    models: str = json.dumps({"data": [{"id": "m"}]})
    """What /v1/models says."""
    url: str = ""
    bodies: list[dict] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    received: list[float] = field(default_factory=list)
    """When each POST had come, by the clock that clients read."""
    sent: list[float] = field(default_factory=list)
    """When each event began to be sent."""
    connections: int = 0
    open_at_once: int = 0
    most_at_once: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET"):
            text = self.metrics.pop(0) if "/metrics" in head and self.metrics else self.models
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return True
        length = int(next(line for line in head.split("\r\n") if line.startswith("Content-Length")).split(": ")[1])
        body = json.loads(await reader.readexactly(length))
        script = self.scripts[min(len(self.bodies), len(self.scripts) - 1)]
        self.received.append(time.perf_counter())
        self.heads.append(head)
        self.bodies.append(body)
        self.open_at_once += 1
        self.most_at_once = max(self.most_at_once, self.open_at_once)
        try:
            for step in script:
                if step is CLOSE:
                    return False
                if isinstance(step, bytes):
                    self.sent.append(time.perf_counter())
                    writer.write(step)
                    await writer.drain()
                else:
                    await asyncio.sleep(step)
        finally:
            self.open_at_once -= 1
        return True


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def text_event(text: str, finish_reason: str | None = None) -> bytes:
    value = {"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}], "usage": None}
    return chunked(b"data: " + json.dumps(value).encode() + b"\n\n")


def usage_event(prompt_tokens: int, completion_tokens: int) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return chunked(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")


OK = f"HTTP/1.1 200 OK\r\n{HEADERS}\r\n".encode()
DONE = chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def stream(*texts: str, wait_s: float = 0.0, prompt_tokens: int = 5) -> list[object]:
    """A whole answer of a token per text, with a wait before each."""
    steps: list[object] = [OK]
    for index, text in enumerate(texts):
        steps += [wait_s, text_event(text, "length" if index == len(texts) - 1 else None)]
    return [*steps, usage_event(prompt_tokens, len(texts)), DONE]


def plain(status: str, text: str) -> list[object]:
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()]


@contextmanager
def scripted_server(*scripts: list[object], metrics: tuple[str, ...] = (), **texts: str) -> Iterator[ScriptedServer]:
    """Run a server on a free port in a thread of its own."""
    server = ScriptedServer(list(scripts), list(metrics), **texts)
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        listener.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert started.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
