"""What every planted fault works with: a server to harm, clients below the level of HTTP, and what was found."""

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from served import COMMAND, Server, serving

from legato.loading.hf_config import read_hf_config
from legato.loading.source import resolve_model

READ_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How large the faults are: as large as they must be, or small for a quick look."""

    model: str
    quick: bool
    options: tuple[str, ...] = ()
    """Of ``legato serve``, for every server."""

    @contextmanager
    def serving(self, *options: str, command: Sequence[str] = COMMAND) -> Iterator[Server]:
        """Start a server of the model."""
        with serving(["--model", self.model, *self.options, *options], command=command) as server:
            yield server

    def size(self, full: int, quick: int) -> int:
        """Return one of both."""
        return quick if self.quick else full

    @property
    def client_timeout_s(self) -> float:
        """The patience of a server that is asked not to have much."""
        return 0.5 if self.quick else 5.0

    def kv_bytes(self, num_blocks: int, block_size: int = 16) -> int:
        """Return how much so many blocks take, in float32."""
        config = read_hf_config(resolve_model(self.model).path)
        per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
        return num_blocks * block_size * per_token


@dataclass(slots=True, kw_only=True)
class Findings:
    """What a fault did."""

    saw: list[str] = field(default_factory=list)
    """What the client saw, in sentences."""
    recovered: list[str] = field(default_factory=list)
    """What was as before afterwards, in sentences."""
    failed: list[str] = field(default_factory=list)
    """What must hold and did not."""
    figures: dict[str, float] = field(default_factory=dict)

    def check(self, holds: bool, claim: str) -> None:
        """Note a claim that does not hold."""
        if not holds:
            self.failed.append(claim)

    def client(self, holds: bool, claim: str) -> None:
        """Note what the client saw, if it did."""
        self.saw.append(claim)
        self.check(holds, claim)

    def afterwards(self, holds: bool, claim: str) -> None:
        """Note what is as before, if it is."""
        self.recovered.append(claim)
        self.check(holds, claim)


Fault = Callable[[Setting], Coroutine[Any, Any, Findings]]
"""Does one harm; its docstring says which."""


class Wire:
    """A connection that sends whatever bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Send; return whether the server still takes it."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    async def receive(self, *, to_the_end: bool = True) -> bytes:
        """Return what comes, until the server closes the connection; or the first piece of it."""
        received = b""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(READ_S):
                while data := await self._reader.read(1 << 16):
                    received += data
                    if not to_the_end:
                        break
        return received

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def wire(url: str, *, receive_bytes: int | None = None) -> AsyncIterator[Wire]:
    """Connect; ``receive_bytes``: what the system holds for a client that does not read."""
    address = httpx.URL(url)
    raw = socket.socket()
    raw.setblocking(False)
    if receive_bytes is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    await asyncio.get_running_loop().sock_connect(raw, (address.host, address.port))
    limit = 1 << 16 if receive_bytes is None else receive_bytes
    connection = Wire(*await asyncio.open_connection(sock=raw, limit=limit))
    try:
        yield connection
    finally:
        await connection.close()


def post(path: str, body: dict[str, Any]) -> bytes:
    """Return the bytes of a POST request."""
    content = json.dumps(body).encode()
    return (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content)) + content
    )


def status_of(received: bytes) -> int:
    """Return the status of a response; 0: there is none."""
    found = re.match(rb"HTTP/1\.1 (\d+)", received)
    return int(found[1]) if found else 0


def dropped(url: str, reason: str) -> int:
    """Return how many connections the server has dropped for a reason."""
    text = httpx.get(f"{url}/metrics", timeout=READ_S).text
    found = re.search(rf'connections_dropped_total{{reason="{reason}"}} (\S+)', text)
    return int(float(found[1])) if found else 0


def answers(url: str, prompts: Sequence[str], **fields: Any) -> list[list[int]]:
    """Return the tokens of each prompt's greedy answer, asked one after the other."""
    body = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True} | fields
    return [
        httpx.post(f"{url}/v1/completions", json=body | {"prompt": prompt}, timeout=READ_S * 5)
        .raise_for_status()
        .json()["choices"][0]["token_ids"]
        for prompt in prompts
    ]


def answers_as_before(url: str) -> bool:
    """Return whether the server answers an ordinary request."""
    response = httpx.post(f"{url}/v1/completions", json={"prompt": "One", "max_tokens": 2}, timeout=READ_S)
    return response.status_code == 200


async def longest_wait(url: str, work: asyncio.Future[Any] | asyncio.Task[Any]) -> float:
    """Return the longest time that ``/health`` took while ``work`` went on, in seconds; another client's view."""
    longest = 0.0
    async with httpx.AsyncClient(timeout=READ_S) as client:
        while True:
            began = time.monotonic()
            (await client.get(f"{url}/health")).raise_for_status()
            longest = max(longest, time.monotonic() - began)
            if work.done():
                return longest
            await asyncio.sleep(0.02)


def eventually(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Return whether a condition comes to hold in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
