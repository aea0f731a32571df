"""One output while it is generated: its tokens, its text, its end. Owns what has not been handed out yet.

Text is made when it is asked for, and at once only where a stop string may end the output.
"""

from collections.abc import Iterator
from itertools import repeat

from legato.engine.stop_strings import StopStrings
from legato.flow.request import Request
from legato.flow.request_output import CompletionOutput
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.step_output import TokenLogprobs
from legato.loading.detokenizer import IncrementalDetokenizer
from legato.loading.tokenizer import Tokenizer
from legato.observability.request_timing import RequestTiming


class OutputState:
    """Takes updates of one engine request; gives a completion, cumulative or what is new."""

    def __init__(self, request: Request, index: int, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self.index = index
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self._detokenizer = IncrementalDetokenizer(tokenizer) if tokenizer is not None else None
        self._stops = StopStrings(request.params.stop)
        self._watched = bool(request.params.stop) and tokenizer is not None
        self._text: list[str] = []
        self._num_decoded = 0
        """Leading tokens whose text is in ``_text``, or held back by the detokeniser or the stop strings."""
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._given = (0, 0, 0)  # pieces of text, tokens, log-probabilities handed out as deltas
        self._admitted: float | None = None
        self._arrivals: list[tuple[float, int]] = []
        """When updates with tokens came, and how many tokens each brought."""

    def add(self, update: RequestUpdate, now: float) -> bool:
        """Take an update; return whether a stop string ended the output, which the engine cannot know.

        Tokens behind the one that completes a stop string are dropped, as if they had never been generated.
        """
        num_before = len(self._token_ids)
        if update.admitted is not None:
            self._admitted = update.admitted
        self._token_ids += update.token_ids
        if update.logprobs:
            self._logprobs += update.logprobs
        if update.finish_reason is not None:
            self.finish_reason, self.stop_reason = update.finish_reason, update.stop_reason
        matched = self._watch() if self._watched else None
        num_new = len(self._token_ids) - num_before
        if num_new:
            self._arrivals.append((now, num_new))
        if matched is None:
            return False
        self.finish_reason, self.stop_reason = FinishReason.STOP, matched
        return update.finish_reason is None

    def completion(self, *, delta: bool) -> CompletionOutput:
        """Return the output so far, or with ``delta`` what was not returned before."""
        self._decode()
        text, tokens, logprobs = self._given if delta else (0, 0, 0)
        if delta:
            self._given = (len(self._text), len(self._token_ids), len(self._logprobs))
        return CompletionOutput(
            index=self.index,
            text="".join(self._text[text:]),
            token_ids=tuple(self._token_ids[tokens:]),
            logprobs=tuple(self._logprobs[logprobs:]),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )

    def timing(self, request_id: str, finished: float) -> RequestTiming:
        """Return when this output's tokens came."""
        return RequestTiming(
            request_id=request_id,
            index=self.index,
            num_prompt_tokens=len(self.request.prompt_token_ids),
            num_output_tokens=len(self._token_ids),
            arrival=self.request.arrival,
            admitted=self._admitted,
            first_token=self._arrivals[0][0] if self._arrivals else None,
            finished=finished,
            inter_token_s=tuple(self._inter_token_s()),
            finish_reason=None if self.finish_reason is None else self.finish_reason.value,
        )

    @property
    def _num_tokens_of_text(self) -> int:
        """Tokens that have text: the one that ends an output is not part of it, as a stop string is not."""
        ended_by_token = self.finish_reason is FinishReason.STOP and not isinstance(self.stop_reason, str)
        return len(self._token_ids) - ended_by_token

    def _decode(self) -> None:
        """Bring the text up to date where no stop string is watched for."""
        if self._detokenizer is None or self._watched:
            return
        end = self._num_tokens_of_text
        text = self._detokenizer.add(self._token_ids[self._num_decoded : end])
        self._num_decoded = end
        if self.finish_reason is not None:
            text += self._detokenizer.finish()
        if text:
            self._text.append(text)

    def _watch(self) -> str | None:
        """Bring the text up to date, token by token; return the stop string that one of them completes."""
        assert self._detokenizer is not None
        while self._num_decoded < self._num_tokens_of_text:
            token_id = self._token_ids[self._num_decoded]
            self._num_decoded += 1
            matched = self._release(self._detokenizer.add((token_id,)), self._num_decoded)
            if matched is not None:
                del self._token_ids[self._num_decoded :], self._logprobs[self._num_decoded :]
                return matched
        return None if self.finish_reason is None else self._flush()

    def _release(self, text: str, num_tokens: int) -> str | None:
        released, matched = self._stops.add(text, armed=num_tokens > self.request.params.min_tokens)
        if released:
            self._text.append(released)
        return matched

    def _flush(self) -> str | None:
        """Release what detokeniser and stop strings held back; return the stop string that this completes."""
        assert self._detokenizer is not None
        matched = self._release(self._detokenizer.finish(), len(self._token_ids))
        if matched is None:
            self._text.append(self._stops.finish())
        return matched

    def _inter_token_s(self) -> Iterator[float]:
        """Yield the seconds between tokens; those that came together share their wait evenly."""
        for index, (arrival, num_tokens) in enumerate(self._arrivals):
            if index == 0:
                yield from repeat(0.0, num_tokens - 1)  # the first token's wait is not between two tokens
            else:
                yield from repeat((arrival - self._arrivals[index - 1][0]) / num_tokens, num_tokens)
