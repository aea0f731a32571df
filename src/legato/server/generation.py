"""From a checked request to its HTTP answer, streamed or whole: the one loop that all generating routes share.

A route brings an :class:`AnswerFormat`, which knows how its answer is spelled, and its events; this module knows when.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Protocol

import msgspec
from fastapi import Request
from starlette.responses import Response

from legato.flow.request_output import CompletionOutput
from legato.server.answer import Answer, Choice
from legato.server.disconnect import while_connected
from legato.server.errors import ApiError, api_error
from legato.server.job import Job
from legato.server.responses import Usage
from legato.server.sse import EventStream
from legato.server.state import ServerState

Deltas = AsyncIterator[tuple[Choice, CompletionOutput]]


class AnswerFormat(Protocol):
    """How one route spells its answer."""

    def opening(self, choice: Choice) -> bytes:
        """Return the events that come before a choice's first tokens, if there are any."""
        ...

    def chunk(self, choice: Choice, delta: CompletionOutput, usage: Usage | None) -> bytes:
        """Return the events of new text of a choice, which includes it already; none: there is nothing to tell yet."""
        ...

    def ending(self, usage: Usage) -> bytes:
        """Return the events that follow when the last choice has ended."""
        ...

    def failure(self, error: ApiError) -> bytes:
        """Return the events that end a stream which cannot go on."""
        ...

    def whole(self, choices: list[Choice], usage: Usage) -> msgspec.Struct:
        """Return the answer in one piece."""
        ...


async def respond(request: Request, state: ServerState, job: Job, form: AnswerFormat) -> Response:
    """Run ``job`` and return its answer; raises whatever it was refused with.

    A stream's response starts with its first token, so that every refusal has its proper status. A client that leaves
    ends the job at once.
    """
    async with AsyncExitStack() as resources:
        resources.enter_context(state.admission.slots(len(job.prompts) * job.params.n))
        answer = Answer(job, state.metrics)
        deltas = await resources.enter_async_context(aclosing(answer.deltas(state.llm)))
        if job.stream:
            first = await while_connected(request, anext(deltas))
            without_text = job.tokens_wanted or state.llm.tokenizer is None  # then there is no other sign of a token
            events = _events(answer, form, _resumed(first, deltas), without_text=without_text)
            return EventStream(events, resources.pop_all())
        await while_connected(request, _exhaust(deltas))
        body = msgspec.json.encode(form.whole(answer.choices, answer.usage()))
        return Response(body, media_type="application/json")


async def _events(
    answer: Answer, form: AnswerFormat, deltas: Deltas, *, without_text: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the stream; ``without_text``: tokens are told of though they make no text yet."""
    options = answer.job.stream_options
    try:
        async for choice, delta in deltas:
            events = form.opening(choice) if choice.just_opened else b""
            if delta.text or delta.finish_reason is not None or without_text:
                events += form.chunk(choice, delta, answer.usage() if options.continuous_usage_stats else None)
            if delta.finish_reason is not None and answer.is_whole:
                events += form.ending(answer.usage())
            if events:
                yield events
    except Exception as error:  # the status is sent already: whatever happened can only be told in the stream
        yield form.failure(api_error(error))


async def _exhaust(deltas: Deltas) -> None:
    async for _ in deltas:
        pass


async def _resumed(first: tuple[Choice, CompletionOutput], rest: Deltas) -> Deltas:
    yield first
    async for delta in rest:
        yield delta
