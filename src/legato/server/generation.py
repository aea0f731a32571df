"""From a checked request to its HTTP answer, streamed or whole: the one loop that all generating routes share.

A route brings an :class:`AnswerFormat`, which knows how its answer is spelled; this module knows when.
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
from legato.server.errors import api_error
from legato.server.job import Job
from legato.server.responses import Usage
from legato.server.sse import DONE, EventStream, error_event, event
from legato.server.state import ServerState

Deltas = AsyncIterator[tuple[Choice, CompletionOutput]]


class AnswerFormat(Protocol):
    """How one route spells its answer."""

    def opening(self, choice: Choice) -> msgspec.Struct | None:
        """Return the chunk that comes before a choice's first tokens, if there is one."""
        ...

    def chunk(self, choice: Choice, delta: CompletionOutput, usage: Usage | None) -> msgspec.Struct | None:
        """Return the chunk for new text of a choice, which includes it already; None: there is nothing to tell yet."""
        ...

    def usage_chunk(self, usage: Usage) -> msgspec.Struct:
        """Return the chunk that tells the usage after the last choice has ended."""
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
            if choice.just_opened and (opening := form.opening(choice)) is not None:
                yield event(opening)
            if delta.text or delta.finish_reason is not None or without_text:
                chunk = form.chunk(choice, delta, answer.usage() if options.continuous_usage_stats else None)
                if chunk is not None:
                    yield event(chunk)
        if options.include_usage:
            yield event(form.usage_chunk(answer.usage()))
        yield DONE
    except Exception as error:  # the status is sent already: whatever happened can only be told in the stream
        yield error_event(api_error(error))


async def _exhaust(deltas: Deltas) -> None:
    async for _ in deltas:
        pass


async def _resumed(first: tuple[Choice, CompletionOutput], rest: Deltas) -> Deltas:
    yield first
    async for delta in rest:
        yield delta
