"""One request to an OpenAI-compatible server, streamed. Owns the request's body and what counts as a failure.

Whatever a server does to a request ends in a record with a reason, never in an exception.
"""

import asyncio
import time
from dataclasses import dataclass, replace

import msgspec

from legato.bench.serving.chunks import read_chunk, told, told_by
from legato.bench.serving.connection import Connection, Pool
from legato.bench.serving.events import EventReader, MalformedStreamError
from legato.bench.serving.prompt import Prompt
from legato.bench.serving.record import RequestRecord

ROUTES = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
MAX_ERROR_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to ask, and how."""

    base_url: str
    model: str
    endpoint: str = "completions"
    """``completions`` or ``chat``."""
    api_key: str | None = None
    ignore_eos: bool = False
    """Every answer has its full length."""
    temperature: float | None = 0.0
    """None: the server's default."""
    stall_timeout_s: float = 600.0
    """How long a server may say nothing before a request has failed."""

    def body(self, prompt: Prompt) -> bytes:
        """Return the body of a request. A chat has the prompt as its only message."""
        fields: dict[str, object] = {"model": self.model, "stream": True, "max_tokens": prompt.output_len}
        if self.endpoint == "chat":
            fields["messages"] = [{"role": "user", "content": prompt.content}]
        else:
            fields["prompt"] = prompt.content
        if self.temperature is not None:
            fields["temperature"] = self.temperature
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return msgspec.json.encode(fields | {"stream_options": {"include_usage": True}})


class Client:
    """Sends requests that are written out already, so that nothing is made while a clock runs."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = Pool(target.base_url, api_key=target.api_key)

    def written(self, prompt: Prompt) -> bytes:
        """Return the bytes of a request."""
        return self._pool.request(ROUTES[self._target.endpoint], self._target.body(prompt))

    async def ask(self, request: bytes, *, due: float) -> RequestRecord:
        """Send a request and take in its answer."""
        sent = time.perf_counter()
        answer = _Answer()
        failure = await self._exchange(request, answer)
        if answer.may_be_repeated(failure):
            answer = _Answer()
            failure = await self._exchange(request, answer)
        return answer.record(failure, due=due, sent=sent)

    def close(self) -> None:
        """Close what is open."""
        self._pool.close()

    async def _exchange(self, request: bytes, answer: "_Answer") -> str | None:
        """Return why there is no whole answer; None: there is."""
        try:
            connection = await self._pool.take()
        except TimeoutError:
            return "no connection in time"
        except OSError as error:
            return f"no connection: {error.strerror or error}"
        answer.on_used_connection = connection.responses > 0
        try:
            connection.send(request, answer)
            await self._ended(answer)
            return answer.failure
        except TimeoutError:
            return f"nothing came for {self._target.stall_timeout_s:g} s"
        finally:
            self._give_back(connection, answer)

    async def _ended(self, answer: "_Answer") -> None:
        """Wait for the end. Raises TimeoutError where nothing comes for too long."""
        limit = self._target.stall_timeout_s
        while True:
            waits_until = answer.heard + limit
            left = waits_until - time.perf_counter()
            if left <= 0:
                raise TimeoutError
            done, _ = await asyncio.wait({answer.ended}, timeout=left)
            if done:
                return

    def _give_back(self, connection: Connection, answer: "_Answer") -> None:
        if answer.ended.done():
            self._pool.give_back(connection)
        else:  # its response would go on
            connection.close()


class _Answer:
    """Takes in one response."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = time.perf_counter()
        self.on_used_connection = False
        self.failure: str | None = None
        self._status = 0
        self._events = EventReader()
        self._error_body = b""
        self._times: list[float] = []
        self._finished = False
        self._ended_bare_at: float | None = None
        """When the end came, by itself and without text."""
        self._input_tokens = 0
        self._output_tokens: int | None = None

    def on_status(self, status: int) -> None:
        self._status = status

    def on_data(self, now: float, data: bytes) -> None:
        self.heard = now
        if self._status != 200:
            self._error_body += data[: MAX_ERROR_BYTES - len(self._error_body)]
            return
        if self.failure is not None:
            return
        try:
            for name, text in self._events.feed(data):
                self._on_event(now, name, text)
        except MalformedStreamError as error:
            self.failure = f"malformed event: {error}"

    def on_end(self, reason: str | None) -> None:
        self.heard = time.perf_counter()
        if self._status not in (0, 200):
            self.failure = f"HTTP {self._status}: {told(self._error_body)}".removesuffix(": ")
        elif self.failure is None and not self._finished:
            self.failure = reason or "the stream ended early"
        if not self.ended.done():
            self.ended.set_result(None)

    def may_be_repeated(self, failure: str | None) -> bool:
        """Whether the server had closed the connection before the request came: it never saw it."""
        return failure is not None and self.on_used_connection and self.ended.done() and self._status == 0

    def record(self, failure: str | None, *, due: float, sent: float) -> RequestRecord:
        """Return what is known."""
        record = RequestRecord(
            due=due,
            sent=sent,
            ended=time.perf_counter(),
            token_times=tuple(self._token_times()),
            input_tokens=self._input_tokens,
            output_tokens=len(self._times) if self._output_tokens is None else self._output_tokens,
            counted_by_server=self._output_tokens is not None,
            failure=failure,
        )
        if failure is None and record.output_tokens > 0 and not record.token_times:
            return replace(record, failure="no token came, though the server counted some")
        return record

    def _token_times(self) -> list[float]:
        """Return when tokens arrived. One without text may have come with the end: the server counts it, if it did."""
        if self._ended_bare_at is None or self._output_tokens is None or self._output_tokens <= len(self._times):
            return self._times
        return [*self._times, self._ended_bare_at]

    def _on_event(self, now: float, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            self._finished = True
            return
        if name == "error":
            self.failure = f"error event: {told(data)}"
            return
        chunk = read_chunk(data)
        if chunk.error is not None:
            self.failure = f"error event: {told_by(chunk.error)}"
            return
        if chunk.usage is not None:
            self._input_tokens, self._output_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        brings_tokens = any(choice.brings_tokens for choice in chunk.choices)
        if brings_tokens:
            self._times.append(now)
        if any(choice.finish_reason is not None for choice in chunk.choices):
            self._finished = True
            if not brings_tokens and (not self._times or now > self._times[-1]):
                self._ended_bare_at = now
