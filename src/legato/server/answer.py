"""What a request has got so far: its choices and their counts. Knows nothing of how it is spelled."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from legato.engine.async_engine import AsyncLLM
from legato.flow.guide import Guide
from legato.flow.request_output import CompletionOutput, RequestOutput
from legato.flow.request_update import FinishReason
from legato.flow.step_output import TokenLogprobs
from legato.observability.metrics import Metrics
from legato.server.errors import SERVER, ApiError
from legato.server.job import Job
from legato.server.merge import merged
from legato.server.responses import PromptTokensDetails, Usage


@dataclass(slots=True, kw_only=True)
class Choice:
    """One output of one prompt, so far."""

    index: int
    prompt: RequestOutput
    """The first output of the prompt, which has the prompt's own text, tokens and log-probabilities."""
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    just_opened: bool = True
    """Nothing but the present delta has come."""
    _begun: bool = False

    def add(self, delta: CompletionOutput) -> None:
        """Take in what is new."""
        self.just_opened = not self._begun
        self._begun = True
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class Answer:
    """Runs a job and keeps what comes of it."""

    def __init__(self, job: Job, metrics: Metrics) -> None:
        self.job = job
        self._metrics = metrics
        self._prompts: dict[int, RequestOutput] = {}
        self._choices: dict[int, Choice] = {}

    @property
    def choices(self) -> list[Choice]:
        """All choices, in order."""
        return [self._choices[index] for index in sorted(self._choices)]

    @property
    def is_whole(self) -> bool:
        """Whether all choices have ended."""
        num_ended = sum(choice.finish_reason is not None for choice in self._choices.values())
        return num_ended == len(self.job.prompts) * self.job.params.n

    def usage(self) -> Usage:
        """Return the tokens so far."""
        prompts = self._prompts.values()
        prompt_tokens = sum(len(prompt.prompt_token_ids) for prompt in prompts)
        completion_tokens = sum(len(choice.token_ids) for choice in self._choices.values())
        cached = sum(prompt.num_cached_tokens for prompt in prompts)
        details = PromptTokensDetails(cached)
        return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, details)

    async def deltas(self, llm: AsyncLLM) -> AsyncGenerator[tuple[Choice, CompletionOutput], None]:
        """Yield each choice with what is new of it; raises ApiError where an output ends without an answer."""
        job = self.job
        streams = [
            llm.generate(
                prompt,
                job.params,
                request_id=f"{job.request_id}-{number}",
                priority=job.priority,
                add_special_tokens=job.add_special_tokens,
                bad_words=job.bad_words,
            )
            for number, prompt in enumerate(job.prompts)
        ]
        async with aclosing(merged(streams)) as outputs:
            async for number, output in outputs:
                prompt = self._prompts.setdefault(number, output)
                for delta in output.outputs:
                    _check(delta, output, job.params.guided)
                    choice = self._choice(number * job.params.n + delta.index, prompt)
                    choice.add(delta)
                    if delta.finish_reason is not None:
                        self._metrics.request_success.labels(delta.finish_reason.value).inc()
                    yield choice, delta

    def _choice(self, index: int, prompt: RequestOutput) -> Choice:
        if index not in self._choices:
            self._choices[index] = Choice(index=index, prompt=prompt)
        return self._choices[index]


def _check(delta: CompletionOutput, output: RequestOutput, guide: Guide | None) -> None:
    if delta.finish_reason is FinishReason.ERROR:
        message = output.error or "the engine failed on this request"
        # A guide may lead to where nothing can follow, such as a grammar that no text fits: asking again is no use.
        raise ApiError(500, message, kind=SERVER) if guide is None else ApiError(400, message, param=guide.param)
    if delta.finish_reason is FinishReason.ABORT:
        raise ApiError(503, "the request was aborted", kind=SERVER, code="aborted")
