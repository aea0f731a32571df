"""The engine for asyncio: text in, a stream of text out. Owns the order of tokenising, submitting and detokenising.

The engine core runs in its own process; text is tokenised in a thread. What is left for the event loop is small.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.engine.engine_client import DEFAULT_FACTORY, EngineClient
from legato.engine.input_processor import InputProcessor, Prompt
from legato.engine.output_processor import OutputKind, OutputProcessor
from legato.errors import EngineDeadError, RequestError
from legato.flow.guide import Guide
from legato.flow.request import Request
from legato.flow.request_output import RequestOutput
from legato.flow.sampling_params import SamplingParams
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import resolve_model
from legato.loading.tokenizer import Tokenizer
from legato.observability.live_view import LiveView
from legato.observability.records import StepRecord
from legato.observability.request_timing import RequestTiming
from legato.observability.stats import EngineStats

CHARACTERS_PER_TOKEN = 256
"""Longer than any token in use. Text of more characters than this times the model's length is refused untokenised."""
IDS_AT_ONCE = 2048
"""A prompt of so many token ids is made ready by the event loop, in less time than a thread waits for its turn."""
TOKENISING_THREADS = 4
"""So that a short prompt does not wait for a very long one."""
WAITING_THREADS = 16
"""Requests whose grammars are waited for; they do nothing else."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages that become a prompt by the model's chat template."""

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool = True
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    answer_start: str = ""
    """Text that the answer has to continue; it counts as part of the prompt."""


class AsyncLLM:
    """A running engine. To be used from the event loop that started it, and to be shut down there."""

    def __init__(self, client: EngineClient, tokenizer: Tokenizer | None) -> None:
        self.config: EngineConfig = client.config
        self.tokenizer = tokenizer
        self.on_timing: Callable[[RequestTiming], None] = _unobserved
        """Called once per output that ends."""
        self._client = client
        self._inputs = InputProcessor(tokenizer, client.config)
        self._outputs = OutputProcessor(tokenizer)
        self._threads = ThreadPoolExecutor(max_workers=TOKENISING_THREADS, thread_name_prefix="tokenise")
        self._guide_threads = ThreadPoolExecutor(max_workers=WAITING_THREADS, thread_name_prefix="guide")
        self._threads_ended = False

    @classmethod
    async def start(cls, options: EngineOptions, *, factory: str = DEFAULT_FACTORY) -> "AsyncLLM":
        """Start the engine process and load the tokenizer; raises whatever error either was refused with."""
        tokenizer = await asyncio.to_thread(lambda: load_tokenizer(resolve_model(options.model, options.load_format)))
        return cls(await EngineClient.start(options, factory=factory), tokenizer)

    @property
    def error(self) -> EngineDeadError | None:
        """Why the engine process has ended, where it was not told to."""
        return self._client.error

    @property
    def errored(self) -> bool:
        """Whether the engine process has ended without being told to."""
        return self.error is not None

    @property
    def engine_pid(self) -> int:
        """Process id of the engine."""
        return self._client.pid

    async def generate(
        self,
        prompt: Prompt | Conversation,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        add_special_tokens: bool = True,
        bad_words: Sequence[str] = (),
        kind: OutputKind = OutputKind.DELTA,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield outputs as tokens come, by default what is new; the last one is ``finished``.

        Closing the generator, or cancelling its consumer, aborts the request before its next step. Raises RequestError
        for what cannot be served and EngineDeadError when the engine ends.
        """
        user_id = request_id or uuid.uuid4().hex
        arrival = time.monotonic()

        def prepare() -> tuple[str | None, list[Request]]:
            text, special = self._text(prompt, add_special_tokens=add_special_tokens)
            requests = self._inputs.process(
                user_id,
                text,
                self._with_bad_words(params, bad_words),
                priority=priority,
                arrival=arrival,
                add_special_tokens=special,
            )
            return self._shown(text, requests[0]), requests

        if params.guided is not None:
            await self._check_guide(params.guided)
        shown, requests = prepare() if _is_ready_soon(prompt) else await self._in_thread(prepare)
        self._outputs.add(user_id, requests, prompt=shown, kind=kind)
        try:
            async for updates in self._client.submit(requests):
                processed = self._outputs.process(updates)
                if processed.abort:
                    self._client.abort(processed.abort)
                for timing in processed.timings:
                    self.on_timing(timing)
                for output in processed.outputs:
                    yield output
                    if output.finished:
                        return
        finally:
            self._client.abort(self._outputs.forget(user_id))

    async def tokenize(self, prompt: Prompt | Conversation, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids that ``prompt`` becomes; raises RequestError."""

        def encode() -> list[int]:
            text, special = self._text(prompt, add_special_tokens=add_special_tokens)
            return list(self._inputs.token_ids(text, add_special_tokens=special))

        return await self._in_thread(encode)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included; raises RequestError."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            raise RequestError("this model has no tokenizer", param="tokens")
        limit = self.config.model.vocab_size
        if any(not 0 <= token_id < limit for token_id in token_ids):
            raise RequestError("tokens has ids outside the vocabulary", {"limit": f"0 to {limit - 1}"}, param="tokens")
        return await self._in_thread(lambda: tokenizer.decode(token_ids, skip_special_tokens=False))

    async def stats(self) -> EngineStats:
        """Return the engine's counts of now; raises EngineDeadError."""
        return await self._client.stats()

    async def step_records(self, count: int) -> tuple[StepRecord, ...]:
        """Return the last ``count`` step records, oldest first; raises EngineDeadError."""
        return await self._client.step_records(count)

    async def graph_report(self) -> dict[str, Any]:
        """Return policy, decisions and catalog of the graphs as JSON values; raises EngineDeadError."""
        return await self._client.graph_report()

    async def live_view(self, *, seen: int, most: int) -> LiveView:
        """Return the counts of now and up to ``most`` step records past the first ``seen``; raises EngineDeadError."""
        return await self._client.live_view(seen=seen, most=most)

    async def start_profile(self) -> None:
        """Begin to record what the engine runs; raises RequestError where that happens already, EngineDeadError."""
        await self._client.start_profile()

    async def stop_profile(self, path: Path) -> None:
        """End the recording and have it written to ``path``, absolute; raises RequestError, EngineDeadError."""
        await self._client.stop_profile(path)

    async def wait_ended(self) -> None:
        """Return when the engine process has ended, for whatever reason."""
        await self._client.wait_ended()

    async def shutdown(self, *, drain: bool = False, timeout_s: float | None = None) -> None:
        """End the engine: after its open requests, or at once. Requests cut short raise EngineDeadError."""
        await self._client.shutdown(drain=drain, timeout_s=timeout_s)
        self._threads_ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._guide_threads.shutdown(wait=False, cancel_futures=True)

    def _text(self, prompt: Prompt | Conversation, *, add_special_tokens: bool) -> tuple[Prompt, bool]:
        """Return text or token ids, and whether special tokens are still to be added."""
        text, special = prompt, add_special_tokens
        if isinstance(text, Conversation):
            text, special = self._chat_prompt(text), False
        limit = self.config.scheduler.max_model_len * CHARACTERS_PER_TOKEN
        if isinstance(text, str) and len(text) > limit:
            details = {"requested": f"{len(text)} characters", "limit": f"{limit} characters"}
            raise RequestError("the prompt is too long", details, param="prompt")
        return text, special

    def _chat_prompt(self, chat: Conversation) -> str:
        prompt = self._inputs.chat_prompt(
            chat.messages, add_generation_prompt=chat.add_generation_prompt, **chat.template_variables
        )
        return prompt + chat.answer_start

    def _with_bad_words(self, params: SamplingParams, words: Sequence[str]) -> SamplingParams:
        if not words:
            return params
        return replace(params, bad_words_token_ids=params.bad_words_token_ids + self._inputs.bad_words(words))

    def _shown(self, text: Prompt, request: Request) -> str | None:
        if isinstance(text, str):
            return text
        return (
            None
            if self.tokenizer is None
            else self.tokenizer.decode(request.prompt_token_ids, skip_special_tokens=False)
        )

    async def _check_guide(self, guide: Guide) -> None:
        """Raise RequestError for a guide without a grammar; nobody's text waits for a slow one."""
        grammars = self._inputs.grammars
        if not grammars.submit(guide).done():
            await self._in_thread(lambda: grammars.check(guide), self._guide_threads)

    async def _in_thread(self, work: Callable[[], Result], threads: ThreadPoolExecutor | None = None) -> Result:
        """Return what ``work`` gives, by default in a tokenising thread; raises EngineDeadError after the end."""
        if self._threads_ended:
            raise _shut_down()
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _shut_down() from None  # nobody has left: the work was still waiting for its thread


def _is_ready_soon(prompt: Prompt | Conversation) -> bool:
    return not isinstance(prompt, str | Conversation) and len(prompt) <= IDS_AT_ONCE


def _shut_down() -> EngineDeadError:
    return EngineDeadError("the engine has been shut down")


def _unobserved(_: RequestTiming) -> None:
    pass
