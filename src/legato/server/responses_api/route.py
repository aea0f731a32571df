"""``POST /v1/responses``: what has happened in a conversation in, what comes next out. Keeps nothing of either."""

import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from legato.errors import LegatoError
from legato.flow.request_output import CompletionOutput
from legato.flow.request_update import FinishReason
from legato.server.answer import Choice
from legato.server.body import read_body
from legato.server.chat_job import ChatJob, chat_job
from legato.server.description import BODY_REFUSALS, answers, takes
from legato.server.errors import SERVER, ApiError, api_error
from legato.server.generation import respond
from legato.server.message import MessageReader
from legato.server.responses import Usage
from legato.server.responses_api.answer import (
    Incomplete,
    InputTokensDetails,
    Responses,
    ResponsesError,
    ResponsesUsage,
    Status,
)
from legato.server.responses_api.body import ResponsesBody
from legato.server.responses_api.events import (
    Completed,
    Created,
    EndedEarly,
    Event,
    Failed,
    InProgress,
)
from legato.server.responses_api.output import Output
from legato.server.responses_api.translation import as_chat, renamed
from legato.server.sse import named_event
from legato.server.state import ServerState, state_of

EVENTS = "Server-sent events, named by their types; the data of each is a ResponsesEvent."

router = APIRouter()


@router.post(
    "/v1/responses",
    openapi_extra=takes(ResponsesBody),
    responses=answers(Responses, *BODY_REFUSALS, streams=EVENTS),
)
async def respond_to(request: Request) -> Response:
    """Continue a conversation, in OpenAI's newer interface."""
    state = await state_of(request)
    body = await read_body(request, state, ResponsesBody)
    try:
        asked = chat_job(as_chat(body), f"resp_{uuid.uuid4().hex}", state)
        return await respond(request, state, asked.job, ResponsesFormat(asked, body, state))
    except (ApiError, LegatoError) as error:
        raise renamed(api_error(error)) from error


class ResponsesFormat:
    """Responses: a stream's events have names and numbers, and tell of each item from its beginning to its end."""

    def __init__(self, asked: ChatJob, body: ResponsesBody, state: ServerState) -> None:
        self._asked = asked
        self._body = body
        self._model = state.model_name
        self._created = int(time.time())
        self._numbers = count()
        self._output = Output(self._numbers)
        self._reader: MessageReader | None = None
        self._cut_off = False

    def opening(self, choice: Choice) -> bytes:
        """Return the events of the beginning."""
        response = self._response("in_progress")
        return _written(kind(sequence_number=next(self._numbers), response=response) for kind in (Created, InProgress))

    def chunk(self, choice: Choice, delta: CompletionOutput, usage: Usage | None) -> bytes:
        """Return the events of what is new; none while its text may still become part of a mark."""
        return _written(self._taken(choice, delta.text, delta.finish_reason))

    def ending(self, usage: Usage) -> bytes:
        """Return the last event."""
        last = EndedEarly if self._cut_off else Completed
        return _written([last(sequence_number=next(self._numbers), response=self._ended(usage))])

    def failure(self, error: ApiError) -> bytes:
        """Return the last event of a stream that cannot go on."""
        response = self._response("failed", error=_told(renamed(error)))
        return _written([Failed(sequence_number=next(self._numbers), response=response)])

    def whole(self, choices: list[Choice], usage: Usage) -> Responses:
        """Return the answer."""
        [choice] = choices
        for _ in self._taken(choice, choice.text, choice.finish_reason):
            pass  # nobody follows the events
        return self._ended(usage)

    def _taken(self, choice: Choice, text: str, reason: FinishReason | None) -> Iterator[Event]:
        """Take in what is new, and yield its events."""
        if self._reader is None:
            self._reader = self._asked.reader(choice)
        yield from self._output.add(self._reader.pieces(text, ended=reason is not None))
        if reason is not None:
            self._cut_off = reason is FinishReason.LENGTH
            yield from self._output.finish("incomplete" if self._cut_off else "completed")

    def _ended(self, usage: Usage) -> Responses:
        details = Incomplete() if self._cut_off else None
        return self._response(
            "incomplete" if self._cut_off else "completed", incomplete_details=details, usage=_usage(usage)
        )

    def _response(self, status: Status, **more: Any) -> Responses:
        body, params = self._body, self._asked.job.params
        form = None if body.text is None else body.text.format
        choice = body.tool_choice or "auto"
        return Responses(
            id=self._asked.job.request_id,
            created_at=self._created,
            status=status,
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            model=self._model,
            output=list(self._output.items),
            parallel_tool_calls=body.parallel_tool_calls is not False,
            temperature=params.temperature,
            text={"format": {"type": "text"} if form is None else form.model_dump(by_alias=True, exclude_unset=True)},
            tool_choice=choice if isinstance(choice, str) else choice.model_dump(),
            tools=[tool.model_dump(exclude_unset=True) for tool in body.tools or ()],
            top_p=params.top_p,
            **more,
        )


def _usage(usage: Usage) -> ResponsesUsage:
    return ResponsesUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
    )


def _told(error: ApiError) -> ResponsesError:
    return ResponsesError("server_error" if error.body.type == SERVER else "invalid_prompt", error.body.message)


def _written(events: Iterable[Event]) -> bytes:
    return b"".join(named_event(event) for event in events)
