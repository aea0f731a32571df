"""Questions for an engine in this process. Owns the loop around the core; what is right is not its business."""

from collections import deque
from collections.abc import Sequence

from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor
from legato.engine.output_processor import OutputKind, OutputProcessor
from legato.errors import EngineDeadError, QueueFullError
from legato.eval.answers import Answer, Progress
from legato.eval.gsm8k import Prompt
from legato.flow.request import Request
from legato.flow.request_output import RequestOutput
from legato.flow.sampling_params import SamplingParams
from legato.flow.step_output import TokenLogprobs
from legato.observability.request_timing import RequestTiming


class EngineUnderTest:
    """An engine core that serves nobody else."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._input = InputProcessor(core.tokenizer, core.config)
        self._num_asked = 0

    def answer(
        self, prompts: Sequence[Prompt], params: SamplingParams, progress: Progress = lambda *_: None
    ) -> list[Answer]:
        """Return one answer per prompt, all of them handed over at once.

        Raises RequestError before anything runs for a prompt that cannot be served, EngineDeadError for one that fails.
        """
        requests = [self._request(self.prompt_token_ids(prompt), params) for prompt in prompts]
        outputs, timings = self._run(requests, progress)
        return [_answer(output, timings[request_id]) for request_id, output in outputs.items()]

    def scores_after(self, token_ids: Sequence[Sequence[int]], num_best: int) -> list[TokenLogprobs]:
        """Return the scores of the token that follows each sequence, with the ``num_best`` best."""
        num_best = min(num_best, self.core.config.max_logprobs)
        params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=num_best)
        outputs, _ = self._run([self._request(ids, params) for ids in token_ids], lambda *_: None)
        return [output.outputs[0].logprobs[0] for output in outputs.values()]

    def prompt_token_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt as the engine reads it, a conversation by the model's chat template; raises RequestError."""
        if isinstance(prompt, str):
            return self._input.token_ids(prompt)
        return self._input.token_ids(self._input.chat_prompt(prompt), add_special_tokens=False)

    def _request(self, token_ids: Sequence[int], params: SamplingParams) -> Request:
        self._num_asked += 1
        [request] = self._input.process(f"eval-{self._num_asked}", token_ids, params)
        return request

    def _run(
        self, requests: Sequence[Request], progress: Progress
    ) -> tuple[dict[str, RequestOutput], dict[str, RequestTiming]]:
        """Run requests to their end; return their outputs in order, and when they came."""
        processor = OutputProcessor(self.core.tokenizer)
        for request in requests:
            processor.add(request.request_id, [request], kind=OutputKind.FINAL)
        waiting = deque(requests)
        finished: dict[str, RequestOutput] = {}
        timings: dict[str, RequestTiming] = {}
        num_tokens = 0
        while len(finished) < len(requests):
            self._feed(waiting)
            if not self.core.has_work:
                raise EngineDeadError("the engine has no work, but answers are missing")
            processed = processor.process(self.core.step())
            self.core.abort(processed.abort)
            for output in processed.outputs:
                if output.error is not None:
                    raise EngineDeadError("a question failed", {"found": output.error})
                finished[output.request_id] = output
            timings |= {timing.request_id: timing for timing in processed.timings}
            num_tokens += processed.num_tokens
            progress(len(finished), num_tokens)
        return {request.request_id: finished[request.request_id] for request in requests}, timings

    def _feed(self, waiting: deque[Request]) -> None:
        """Hand over requests until the engine holds as many as it may."""
        while waiting:
            try:
                self.core.add(waiting[0])
            except QueueFullError:
                return
            waiting.popleft()


def _answer(output: RequestOutput, timing: RequestTiming) -> Answer:
    completion, between = output.outputs[0], timing.inter_token_s
    return Answer(
        text=completion.text,
        token_ids=completion.token_ids,
        num_prompt_tokens=len(output.prompt_token_ids),
        num_output_tokens=len(completion.token_ids),
        latency_s=timing.e2e_s,
        ms_per_token=sum(between) * 1e3 / len(between) if between else None,
    )
