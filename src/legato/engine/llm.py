"""The engine in this process, for Python programs. Owns the loop around the core and who waits for which output.

Single-threaded: whoever waits for an output steps the engine, and what the step brings for others is kept for them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor, Messages, Prompt
from legato.engine.output_processor import OutputKind, OutputProcessor, ProcessedUpdates
from legato.errors import EngineDeadError, QueueFullError, RequestError
from legato.flow.request import Request
from legato.flow.request_output import RequestOutput
from legato.flow.sampling_params import SamplingParams
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats

_Params = SamplingParams | Sequence[SamplingParams] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    request_id: str
    prompt: str | None
    requests: list[Request]


class LLM:
    """A model, ready to generate.

    ``model`` and ``engine_options`` are the fields of :class:`~legato.config.options.EngineOptions`, which may also be
    given whole in place of ``model``. ``console`` shows how building goes; None: nothing is shown.
    """

    def __init__(
        self, model: str | EngineOptions = "smollm2", *, console: Console | None = None, **engine_options: Any
    ) -> None:
        options = EngineOptions(model=model, **engine_options) if isinstance(model, str) else model
        self._take(build_engine(options, console))

    @classmethod
    def over(cls, core: EngineCore) -> "LLM":
        """Return an LLM over an engine that is built already."""
        llm = cls.__new__(cls)
        llm._take(core)
        return llm

    def _take(self, core: EngineCore) -> None:
        self.core = core
        self.config = core.config
        self.tokenizer = core.tokenizer
        self.input = InputProcessor(core.tokenizer, core.config, core.grammars)
        self._output = OutputProcessor(core.tokenizer)
        self._arrived: dict[str, deque[RequestOutput]] = {}
        """Outputs that nobody has taken yet, by request."""
        self._num_requests = 0

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: _Params = None, *, use_progress: bool = True
    ) -> list[RequestOutput]:
        """Continue one prompt or many, given as text or token ids; return one output per prompt, in their order.

        ``params`` are for all prompts, or one per prompt. Raises RequestError before anything runs where a prompt
        cannot be served. What fails while running has its error in its output; the others are not lost.
        """
        return self._run(self._jobs(_each_prompt(prompts), params), use_progress=use_progress)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: _Params = None,
        *,
        use_progress: bool = True,
        **template_variables: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or many; as :meth:`generate` for what the model's chat template makes of them."""
        conversations = _each_conversation(messages)
        prompts = [self.input.chat_prompt(conversation, **template_variables) for conversation in conversations]
        return self._run(self._jobs(prompts, params, add_special_tokens=False), use_progress=use_progress)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Yield what is new of one prompt's outputs, as it comes. Closing the iterator aborts the request.

        Raises RequestError at once, not at the first item. Several streams may be open; each advances all.
        """
        [job] = self._jobs([prompt], params)
        return self._deltas(job)

    def stream_chat(
        self, messages: Messages, params: SamplingParams | None = None, **template_variables: Any
    ) -> Iterator[RequestOutput]:
        """Yield what is new of the answer to one conversation; as :meth:`stream`."""
        prompt = self.input.chat_prompt(messages, **template_variables)
        [job] = self._jobs([prompt], params, add_special_tokens=False)
        return self._deltas(job)

    def stats(self) -> EngineStats:
        """Return the engine's counts of now."""
        return self.core.stats()

    def graph_report(self) -> dict[str, Any]:
        """Return policy, decisions and captured graphs, as JSON values."""
        return self.core.graph_report()

    def step_records(self) -> tuple[StepRecord, ...]:
        """Return the latest steps' records, oldest first."""
        return tuple(self.core.step_log.recent)

    def _jobs(self, prompts: Sequence[Prompt], params: _Params, *, add_special_tokens: bool = True) -> list[_Job]:
        """Return everything that is to run, validated; nothing has started yet."""
        jobs = []
        for prompt, own_params in zip(prompts, _each_params(params, len(prompts)), strict=True):
            request_id = f"llm-{self._num_requests}"
            self._num_requests += 1
            requests = self.input.process(request_id, prompt, own_params, add_special_tokens=add_special_tokens)
            text = prompt if isinstance(prompt, str) else None
            jobs.append(_Job(request_id=request_id, prompt=text, requests=requests))
        return jobs

    def _run(self, jobs: Sequence[_Job], *, use_progress: bool) -> list[RequestOutput]:
        finished: dict[str, RequestOutput] = {}
        own = {job.request_id for job in jobs}
        waiting = deque(request for job in jobs for request in job.requests)
        try:
            for job in jobs:
                self._open(job, OutputKind.FINAL)
            with _progress(len(jobs), use_progress and len(jobs) > 1) as advance:
                while len(finished) < len(jobs):
                    self._feed(waiting)
                    step = self._step()
                    if step.outputs:
                        finished |= {output.request_id: output for output in step.outputs if output.request_id in own}
                    advance(len(finished), step.num_tokens)
        finally:
            for job in jobs:
                self._close(job.request_id)
        return [finished[job.request_id] for job in jobs]

    def _deltas(self, job: _Job) -> Iterator[RequestOutput]:
        arrived = self._open(job, OutputKind.DELTA)
        waiting = deque(job.requests)
        finished = False
        try:
            while not finished:
                self._feed(waiting)
                if not arrived:
                    self._step()
                while arrived:
                    output = arrived.popleft()
                    finished = output.finished
                    yield output
        finally:
            self._close(job.request_id)

    def _open(self, job: _Job, kind: OutputKind) -> deque[RequestOutput]:
        self._output.add(job.request_id, job.requests, prompt=job.prompt, kind=kind)
        return self._arrived.setdefault(job.request_id, deque())

    def _close(self, request_id: str) -> None:
        self.core.abort(self._output.forget(request_id))
        self._arrived.pop(request_id, None)

    def _feed(self, waiting: deque[Request]) -> None:
        """Hand requests to the core until it holds as many as it may."""
        while waiting:
            try:
                self.core.add(waiting[0])
            except QueueFullError:
                if not self.core.has_work:
                    raise
                return
            waiting.popleft()

    def _step(self) -> ProcessedUpdates:
        if not self.core.has_work:
            raise EngineDeadError("the engine has no work, but outputs are missing")
        processed = self._output.process(self.core.step())
        if processed.abort:
            self.core.abort(processed.abort)
        for output in processed.outputs:
            self._arrived[output.request_id].append(output)
        return processed


def _each_prompt(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Return a list of prompts for one or many; an empty list is one prompt, an empty one."""
    if isinstance(prompts, str) or len(prompts) == 0 or hasattr(prompts[0], "__index__"):
        return [cast(Prompt, prompts)]
    return cast(Sequence[Prompt], prompts)


def _each_conversation(messages: Messages | Sequence[Messages]) -> Sequence[Messages]:
    if len(messages) == 0 or isinstance(messages[0], Mapping):
        return [cast(Messages, messages)]
    return cast(Sequence[Messages], messages)


def _each_params(params: _Params, count: int) -> Sequence[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        details = {"requested": f"{len(params)} sampling parameters", "found": f"{count} prompts"}
        raise RequestError("there must be one set of sampling parameters per prompt", details, param="params")
    return params


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar of prompts on standard error, if it is a terminal; yields the function to tell (done, new tokens)."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda done, new_tokens: None
        return
    columns = (
        TextColumn("prompts"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[tokens_per_s]:.0f} tokens/s"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total, tokens_per_s=0.0)
        num_tokens = 0

        def advance(done: int, new_tokens: int) -> None:
            nonlocal num_tokens
            num_tokens += new_tokens
            elapsed = progress.tasks[0].elapsed or 0.0
            progress.update(task, completed=done, tokens_per_s=num_tokens / elapsed if elapsed else 0.0)

        yield advance
