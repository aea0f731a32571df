"""RequestUpdate -> RequestOutput. Owns which engine requests belong to which of the user's, and how they are given.

Knows neither how updates arrive nor who waits for the outputs: the in-process and the asynchronous engine share it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from legato.engine.output_state import OutputState
from legato.flow.request import Request, id_in_use
from legato.flow.request_output import RequestOutput
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.step_output import TokenLogprobs
from legato.loading.tokenizer import Tokenizer
from legato.observability.request_timing import RequestTiming


class OutputKind(StrEnum):
    """What an output holds, and when there is one."""

    CUMULATIVE = "cumulative"
    """All outputs so far, after every step that brought a token."""
    DELTA = "delta"
    """What is new, of the outputs that have something new."""
    FINAL = "final"
    """Everything, once, when all outputs have ended."""


class ProcessedUpdates(Struct, frozen=True, kw_only=True):
    """What the updates of a step came to. A struct: a stream makes one for each of its tokens."""

    outputs: tuple[RequestOutput, ...]
    """One per request of the user's that has something to show."""
    abort: tuple[str, ...]
    """Engine requests that a stop string ended: the engine is to abort them."""
    timings: tuple[RequestTiming, ...]
    """One per output that ended."""
    num_tokens: int
    """Tokens in the updates."""


@dataclass(slots=True, kw_only=True)
class _RequestState:
    request_id: str
    prompt: str | None
    kind: OutputKind
    outputs: tuple[OutputState, ...]
    num_open: int
    """Outputs that have not ended."""
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_cached_tokens: int = 0
    error: str | None = None

    @property
    def finished(self) -> bool:
        return self.num_open == 0


class OutputProcessor:
    """The requests of one frontend that have not ended."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, tuple[_RequestState, OutputState]] = {}
        """Engine request id -> whose it is."""

    def add(
        self,
        request_id: str,
        requests: Sequence[Request],
        *,
        prompt: str | None = None,
        kind: OutputKind = OutputKind.CUMULATIVE,
    ) -> None:
        """Register a request of the user's with its engine requests, one per output, before they are submitted.

        Without ``prompt`` the text is decoded from the token ids, where there is a tokenizer. Raises RequestError for
        an id that is in use.
        """
        if taken := [request.request_id for request in requests if request.request_id in self._states]:
            raise id_in_use(*taken)
        if prompt is None and self._tokenizer is not None:
            prompt = self._tokenizer.decode(requests[0].prompt_token_ids, skip_special_tokens=False)
        outputs = tuple(OutputState(request, index, self._tokenizer) for index, request in enumerate(requests))
        state = _RequestState(request_id=request_id, prompt=prompt, kind=kind, outputs=outputs, num_open=len(outputs))
        self._states |= {output.request.request_id: (state, output) for output in outputs}

    def forget(self, request_id: str) -> tuple[str, ...]:
        """Drop a request of the user's; return its engine requests that have not ended, for the engine to abort."""
        ids = tuple(key for key, (state, _) in self._states.items() if state.request_id == request_id)
        for key in ids:
            del self._states[key]
        return ids

    def process(self, updates: Iterable[RequestUpdate], *, now: float | None = None) -> ProcessedUpdates:
        """Take a step's updates, at ``now`` in monotonic seconds. Updates of forgotten requests are ignored."""
        now = time.monotonic() if now is None else now
        touched: dict[str, tuple[_RequestState, dict[int, OutputState]]] = {}
        abort: list[str] = []
        timings: list[RequestTiming] = []
        num_tokens = 0
        for update in updates:
            found = self._states.get(update.request_id)
            if found is None:
                continue
            state, output = found
            num_tokens += len(update.token_ids)
            if output.add(update, now):
                abort.append(update.request_id)
            _take_request_fields(state, output, update)
            ended = output.finish_reason is not None
            if ended:
                del self._states[update.request_id]
                timings.append(output.timing(state.request_id, now))
                state.num_open -= 1
            if state.num_open == 0 or (state.kind is not OutputKind.FINAL and (update.token_ids or ended)):
                touched.setdefault(state.request_id, (state, {}))[1][output.index] = output
        outputs = tuple(_request_output(state, tuple(changed.values())) for state, changed in touched.values())
        return ProcessedUpdates(outputs=outputs, abort=tuple(abort), timings=tuple(timings), num_tokens=num_tokens)


def _take_request_fields(state: _RequestState, output: OutputState, update: RequestUpdate) -> None:
    if update.num_cached_tokens > state.num_cached_tokens:
        state.num_cached_tokens = update.num_cached_tokens
    if update.prompt_logprobs and output.index == 0:  # they are the same for all outputs
        state.prompt_logprobs.extend(update.prompt_logprobs)
    if update.finish_reason is FinishReason.ERROR:
        state.error = update.error or "the engine failed on this request"


def _request_output(state: _RequestState, changed: Sequence[OutputState]) -> RequestOutput:
    delta = state.kind is OutputKind.DELTA
    first = state.outputs[0].request
    return RequestOutput(
        request_id=state.request_id,
        prompt=state.prompt,
        prompt_token_ids=first.prompt_token_ids,
        outputs=tuple(output.completion(delta=delta) for output in (changed if delta else state.outputs)),
        prompt_logprobs=None if first.params.prompt_logprobs is None else (None, *state.prompt_logprobs),
        num_cached_tokens=state.num_cached_tokens,
        finished=state.finished,
        error=state.error,
    )
