"""Asking a server one question, and what came of it. Owns how an answer is read and compared; draws nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import httpx
from soak_questions import BadRequest, Body, Question

from legato.bench.serving.events import EventReader

STUCK_S = 180.0
"""A request of which nothing comes for so long is stuck."""
LOGPROB_TOLERANCE = 2e-3


class Outcome(StrEnum):
    """How a request ended, as its client sees it."""

    RIGHT = "right answer"
    LEFT = "left, right so far"
    REFUSED = "refused for want of room"
    REJECTED = "bad request, refused as it must be"
    WRONG = "wrong answer"
    STUCK = "stuck"
    FAILED = "failed"


VIOLATIONS = (Outcome.WRONG, Outcome.STUCK, Outcome.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One request's end."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a question is asked."""

    stream: bool
    leaves_after_s: float | None = None
    """The client goes away then, whatever has come."""
    leaves_after_events: int | None = None


@dataclass(slots=True, kw_only=True)
class Choice:
    """One output, as much of it as came."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


Answer = dict[int, Choice]
"""Index of the output -> the output."""


class Client:
    """Asks one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = _connections(url)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def renew(self) -> None:
        """Close the connections; the next request makes one."""
        await self._http.aclose()
        self._http = _connections(self._url)

    async def model(self) -> dict[str, Any]:
        """Return what the server tells of its model."""
        models: list[dict[str, Any]] = (await self._http.get("/v1/models")).json()["data"]
        return models[0]

    async def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        return (await self._http.get("/metrics")).text

    async def answer(self, question: Question) -> Answer:
        """Return the whole answer; raises HTTPStatusError where there is none."""
        response = await self._http.post(question.route, json=question.body)
        response.raise_for_status()
        return read_whole(response.json())

    async def ask(self, question: Question, expected: Answer, manner: Manner) -> Ended:
        """Ask a question and compare what comes with what was expected."""
        given: Answer = {}
        ended = None
        try:
            async with asyncio.timeout(manner.leaves_after_s):
                ended = await self._ask(question, given, manner)
        except TimeoutError:
            pass
        except httpx.ReadTimeout:
            return Ended(outcome=Outcome.STUCK, detail=f"{question.kind}: nothing came for {STUCK_S:g} s")
        except (httpx.HTTPError, ValueError) as error:
            return Ended(outcome=Outcome.FAILED, detail=f"{question.kind}: {type(error).__name__}: {error}")
        if ended is not None and ended.outcome is not Outcome.RIGHT:
            return ended
        left = ended is None
        found = difference(expected, given, partial=left)
        if found is not None:
            return Ended(outcome=Outcome.WRONG, detail=f"{question.kind}: {found}; asked {json.dumps(question.body)}")
        return Ended(outcome=Outcome.LEFT if left else Outcome.RIGHT)

    async def ask_badly(self, request: BadRequest) -> Ended:
        """Send what must be refused."""
        try:
            response = await self._http.post(
                request.route, content=request.content, headers={"Content-Type": "application/json"}
            )
        except httpx.ReadTimeout:
            return Ended(outcome=Outcome.STUCK, detail=request.name)
        except httpx.HTTPError as error:
            return Ended(outcome=Outcome.FAILED, detail=f"{request.name}: {type(error).__name__}: {error}")
        if response.status_code == request.status and response.json()["error"]["message"]:
            return Ended(outcome=Outcome.REJECTED)
        return _refusal(request.name, response.status_code, response.text)

    async def _ask(self, question: Question, given: Answer, manner: Manner) -> Ended | None:
        """Fill ``given``; return how the request ended, None where the client left."""
        body = question.body | {"stream": manner.stream}
        async with self._http.stream("POST", question.route, json=body) as response:
            if response.status_code != 200:
                return _refusal(question.kind, response.status_code, (await response.aread()).decode(errors="replace"))
            if not manner.stream:
                given |= read_whole(json.loads(await response.aread()))
                return Ended(outcome=Outcome.RIGHT)
            num_events = 0
            async for name, data in _events(response):
                if name == "error":
                    return Ended(outcome=Outcome.FAILED, detail=f"{question.kind}: {data.decode(errors='replace')}")
                if data == b"[DONE]":
                    return Ended(outcome=Outcome.RIGHT)
                add_chunk(given, json.loads(data))
                num_events += 1
                if num_events == manner.leaves_after_events:
                    return None
        return Ended(outcome=Outcome.FAILED, detail=f"{question.kind}: the stream ended without its last event")


def _connections(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=httpx.Timeout(STUCK_S, connect=30.0))


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, bytes]]:
    reader = EventReader()
    async with contextlib.aclosing(response.aiter_raw()) as received:
        async for data in received:
            for event in reader.feed(data):
                yield event


def _refusal(name: str, status: int, text: str) -> Ended:
    if status == 503 and "queue_full" in text:
        return Ended(outcome=Outcome.REFUSED)
    return Ended(outcome=Outcome.FAILED, detail=f"{name}: {status} {text[:300]}")


def read_whole(body: Body) -> Answer:
    """Return the outputs of an answer in one piece."""
    return {each["index"]: _choice(each, each.get("message") or each) for each in body["choices"]}


def add_chunk(answer: Answer, body: Body) -> None:
    """Add one chunk of a stream to what has come."""
    for each in body["choices"]:
        new, choice = _choice(each, each.get("delta") or each), answer.setdefault(each["index"], Choice())
        choice.text += new.text
        choice.token_ids += new.token_ids
        choice.logprobs += new.logprobs
        choice.finish_reason = new.finish_reason or choice.finish_reason
        choice.stop_reason = new.stop_reason or choice.stop_reason


def _choice(fields: Body, message: Body) -> Choice:
    text: str | None = message.get("text", message.get("content"))
    return Choice(
        text=text or "",
        token_ids=list(fields.get("token_ids") or ()),
        logprobs=list((fields.get("logprobs") or {}).get("token_logprobs", ())),
        finish_reason=fields["finish_reason"],
        stop_reason=fields.get("stop_reason"),
    )


def difference(expected: Answer, given: Answer, *, partial: bool) -> str | None:
    """Return what is wrong with an answer, None if nothing is. ``partial``: it need only be a beginning."""
    if not partial and given.keys() != expected.keys():
        return f"{sorted(given)} are there, not {sorted(expected)}"
    for index, choice in given.items():
        right = expected[index]
        if partial:
            right = Choice(
                text=right.text[: len(choice.text)],
                token_ids=right.token_ids[: len(choice.token_ids)],
                logprobs=right.logprobs[: len(choice.logprobs)],
                finish_reason=right.finish_reason if choice.finish_reason else None,
                stop_reason=right.stop_reason if choice.finish_reason else None,
            )
        found = _difference(asdict(right), asdict(choice))
        if found is not None:
            return f"output {index}: {found}"
    return None


def _difference(right: dict[str, Any], given: dict[str, Any]) -> str | None:
    logprobs, expected = given.pop("logprobs"), right.pop("logprobs")
    for name, value in given.items():
        if value != right[name]:
            return f"{name} is {value!r}, not {right[name]!r}"
    if len(logprobs) != len(expected):
        return f"{len(logprobs)} log-probabilities, not {len(expected)}"
    pairs = zip(logprobs, expected, strict=True)
    apart = max((abs((one or 0.0) - (other or 0.0)) for one, other in pairs), default=0.0)
    return f"log-probabilities are {apart:.1e} apart" if apart > LOGPROB_TOLERANCE else None
