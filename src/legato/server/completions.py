"""``POST /v1/completions``: prompts in, their continuations out. Owns how a completion is spelled."""

import time
import uuid
from typing import cast

from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.responses import Response

from legato.engine.input_processor import Prompt
from legato.flow.request_output import CompletionOutput
from legato.server.answer import Choice
from legato.server.body import read_body
from legato.server.description import BODY_REFUSALS, answers, chunks, takes
from legato.server.errors import ApiError
from legato.server.generation import respond
from legato.server.job import Job, job_of
from legato.server.logprobs import completion_logprobs, joined, prompt_logprobs
from legato.server.params import completion_params
from legato.server.requests import CompletionBody
from legato.server.responses import Completion, CompletionChoice, Usage
from legato.server.sse import error_event, event, last_events
from legato.server.state import ServerState, state_of

router = APIRouter()


@router.post(
    "/v1/completions",
    openapi_extra=takes(CompletionBody),
    responses=answers(Completion, *BODY_REFUSALS, streams=chunks(Completion)),
)
async def complete(request: Request) -> Response:
    """Continue one prompt or several."""
    state = await state_of(request)
    body = await read_body(request, state, CompletionBody)
    job = job_of(body, f"cmpl-{uuid.uuid4().hex}", _prompts(body), completion_params(body))
    return await respond(request, state, job, CompletionFormat(job, body, state))


def _prompts(body: CompletionBody) -> list[Prompt]:
    prompt = body.prompt
    one = isinstance(prompt, str) or (bool(prompt) and isinstance(prompt[0], int))
    prompts = [prompt] if one else prompt
    if not prompts or not all(prompts):
        raise ApiError(400, "prompt: a prompt must not be empty", param="prompt", code="empty_prompt")
    return cast(list[Prompt], prompts)


class CompletionFormat:
    """Completions: chunks have the shape of the whole, each with what is new. What is told of a prompt comes first."""

    failure = staticmethod(error_event)

    def __init__(self, job: Job, body: CompletionBody, state: ServerState) -> None:
        self._job = job
        self._body = body
        self._model = state.model_name
        self._speller = state.speller
        self._created = int(time.time())

    def opening(self, choice: Choice) -> bytes:
        """Return what was asked for of the prompt itself."""
        return self._chunk(self._prompt(choice), None) if self._prompt_wanted else b""

    def chunk(self, choice: Choice, delta: CompletionOutput, usage: Usage | None) -> bytes:
        """Return what is new of a choice."""
        offset = len(self._echoed(choice)) + len(choice.text) - len(delta.text)
        return self._chunk(self._output(choice, delta, offset), usage)

    def ending(self, usage: Usage) -> bytes:
        """Return a chunk without choices, where the usage was asked for, and the end."""
        return last_events(self._answer([], usage) if self._job.stream_options.include_usage else None)

    def whole(self, choices: list[Choice], usage: Usage) -> Completion:
        """Return all choices."""
        return self._answer([self._whole(choice) for choice in choices], usage)

    @property
    def _prompt_wanted(self) -> bool:
        body = self._body
        return bool(body.echo or body.return_token_ids) or body.prompt_logprobs is not None

    def _echoed(self, choice: Choice) -> str:
        return (choice.prompt.prompt or "") if self._body.echo else ""

    def _prompt(self, choice: Choice) -> CompletionChoice:
        body, prompt = self._body, choice.prompt
        positions = prompt.prompt_logprobs or (None,) * len(prompt.prompt_token_ids)
        tokens = zip(prompt.prompt_token_ids, positions, strict=True)
        spelled = (
            completion_logprobs(tokens, self._speller, offset=0) if body.echo and body.logprobs is not None else None
        )
        return CompletionChoice(
            index=choice.index,
            text=self._echoed(choice),
            logprobs=spelled,
            finish_reason=None,
            stop_reason=None,
            prompt_logprobs=UNSET if body.prompt_logprobs is None else prompt_logprobs(positions, self._speller),
            prompt_token_ids=prompt.prompt_token_ids if body.return_token_ids else UNSET,
        )

    def _output(self, choice: Choice, part: CompletionOutput | Choice, offset: int) -> CompletionChoice:
        tokens = ((each.token_id, each) for each in part.logprobs)
        wanted = self._body.logprobs is not None
        return CompletionChoice(
            index=choice.index,
            text=part.text,
            logprobs=completion_logprobs(tokens, self._speller, offset=offset) if wanted else None,
            finish_reason=part.finish_reason,
            stop_reason=part.stop_reason,
            token_ids=list(part.token_ids) if self._body.return_token_ids else UNSET,
        )

    def _whole(self, choice: Choice) -> CompletionChoice:
        output = self._output(choice, choice, len(self._echoed(choice)))
        if not self._prompt_wanted:
            return output
        prompt = self._prompt(choice)
        return replace(
            output,
            text=prompt.text + output.text,
            logprobs=joined(prompt.logprobs, output.logprobs),
            prompt_logprobs=prompt.prompt_logprobs,
            prompt_token_ids=prompt.prompt_token_ids,
        )

    def _chunk(self, choice: CompletionChoice, usage: Usage | None) -> bytes:
        return event(self._answer([choice], usage if self._job.stream_options.include_usage else UNSET))

    def _answer(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(
            id=self._job.request_id, created=self._created, model=self._model, choices=choices, usage=usage
        )
