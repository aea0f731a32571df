"""``POST /v1/chat/completions``: a conversation in, its next message out. Owns how the message is spelled."""

import time
import uuid

from fastapi import APIRouter, Request
from msgspec import UNSET
from starlette.responses import Response

from legato.flow.request_output import CompletionOutput
from legato.flow.request_update import FinishReason
from legato.server.answer import Choice
from legato.server.body import read_body
from legato.server.chat_job import ChatJob, chat_job
from legato.server.description import BODY_REFUSALS, answers, chunks, takes
from legato.server.generation import respond
from legato.server.logprobs import chat_logprobs, prompt_logprobs
from legato.server.message import MessageReader
from legato.server.requests import ChatBody
from legato.server.responses import (
    Chat,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatFinishReason,
    ChatLogprobs,
    Usage,
)
from legato.server.sse import error_event, event, last_events
from legato.server.state import ServerState, state_of

router = APIRouter()


@router.post(
    "/v1/chat/completions",
    openapi_extra=takes(ChatBody),
    responses=answers(Chat, *BODY_REFUSALS, streams=chunks(ChatChunk)),
)
async def chat(request: Request) -> Response:
    """Continue a conversation."""
    state = await state_of(request)
    body = await read_body(request, state, ChatBody)
    asked = chat_job(body, f"chatcmpl-{uuid.uuid4().hex}", state)
    return await respond(request, state, asked.job, ChatFormat(asked, body, state))


class ChatFormat:
    """Chat: a stream's chunks carry deltas of the message, the first of them its role."""

    failure = staticmethod(error_event)

    def __init__(self, asked: ChatJob, body: ChatBody, state: ServerState) -> None:
        self._asked = asked
        self._job = asked.job
        self._body = body
        self._model = state.model_name
        self._speller = state.speller
        self._readers: dict[int, MessageReader] = {}
        """Of a stream's choices, by their index."""
        self._created = int(time.time())

    def opening(self, choice: Choice) -> bytes:
        """Return the chunk with the role."""
        delta = ChatDelta(role="assistant", content="")
        role = ChatChunkChoice(index=choice.index, delta=delta, logprobs=None, finish_reason=None)
        return event(self._chunk([role], None))

    def chunk(self, choice: Choice, delta: CompletionOutput, usage: Usage | None) -> bytes:
        """Return what is new of a choice; nothing while its text may still become part of a mark."""
        reader = self._readers.get(choice.index)
        if reader is None:
            reader = self._readers[choice.index] = self._asked.reader(choice)
        new = reader.delta(delta.text, ended=delta.finish_reason is not None)
        if new == ChatDelta() and delta.finish_reason is None:
            if not self._tokens_wanted:
                return b""
            new = ChatDelta(content="")
        spelled = ChatChunkChoice(
            index=choice.index,
            delta=new,
            logprobs=self._logprobs(delta),
            finish_reason=_finish_reason(delta.finish_reason, reader),
            stop_reason=UNSET if delta.finish_reason is None else delta.stop_reason,
            token_ids=list(delta.token_ids) if self._body.return_token_ids else UNSET,
        )
        return event(self._chunk([spelled], usage))

    def ending(self, usage: Usage) -> bytes:
        """Return a chunk without choices, where the usage was asked for, and the end."""
        return last_events(self._chunk([], usage) if self._job.stream_options.include_usage else None)

    def whole(self, choices: list[Choice], usage: Usage) -> Chat:
        """Return all choices."""
        body, prompt = self._body, choices[0].prompt
        positions = prompt.prompt_logprobs or ()
        return Chat(
            id=self._job.request_id,
            created=self._created,
            model=self._model,
            choices=[self._choice(choice) for choice in choices],
            usage=usage,
            prompt_logprobs=UNSET if body.prompt_logprobs is None else prompt_logprobs(positions, self._speller),
            prompt_token_ids=prompt.prompt_token_ids if body.return_token_ids else UNSET,
        )

    @property
    def _tokens_wanted(self) -> bool:
        return bool(self._body.return_token_ids or self._body.logprobs)

    def _choice(self, choice: Choice) -> ChatChoice:
        reader = self._asked.reader(choice)
        return ChatChoice(
            index=choice.index,
            message=reader.whole(choice.text),
            logprobs=self._logprobs(choice),
            finish_reason=_finish_reason(choice.finish_reason, reader),
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if self._body.return_token_ids else UNSET,
        )

    def _logprobs(self, part: CompletionOutput | Choice) -> ChatLogprobs | None:
        return chat_logprobs(part.logprobs, self._speller) if self._body.logprobs else None

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | None) -> ChatChunk:
        return ChatChunk(
            id=self._job.request_id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage if self._job.stream_options.include_usage else UNSET,
        )


def _finish_reason(reason: FinishReason | None, reader: MessageReader) -> ChatFinishReason | None:
    if reason is None:
        return None
    called = reason is FinishReason.STOP and reader.called
    return ChatFinishReason.TOOL_CALLS if called else ChatFinishReason(reason)
