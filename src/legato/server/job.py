"""One HTTP request, ready to run: what the generating routes make of their bodies."""

from collections.abc import Sequence
from dataclasses import dataclass

from legato.engine.async_engine import Conversation
from legato.engine.input_processor import Prompt
from legato.flow.sampling_params import SamplingParams
from legato.server.requests import GenerationBody, StreamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Prompts to run with the same parameters, and how the answer is to be delivered."""

    request_id: str
    prompts: Sequence[Prompt | Conversation]
    params: SamplingParams
    bad_words: tuple[str, ...]
    add_special_tokens: bool
    priority: int
    stream: bool
    stream_options: StreamOptions
    tokens_wanted: bool
    """A chunk is of interest though its tokens make no text yet."""


def job_of(
    body: GenerationBody, request_id: str, prompts: Sequence[Prompt | Conversation], params: SamplingParams
) -> Job:
    """Return the job that ``body`` asks for."""
    return Job(
        request_id=request_id,
        prompts=prompts,
        params=params,
        bad_words=tuple(body.bad_words or ()),
        add_special_tokens=body.add_special_tokens is not False,
        priority=body.priority,
        stream=bool(body.stream),
        stream_options=body.stream_options or StreamOptions(),
        tokens_wanted=bool(body.return_token_ids) or params.logprobs is not None,
    )
