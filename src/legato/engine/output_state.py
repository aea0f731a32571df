"""One output while it is generated: its tokens, its text, its end. Owns what has not been handed out yet."""

from collections.abc import Sequence

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
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._given = (0, 0, 0)  # pieces of text, tokens, log-probabilities handed out as deltas
        self._first_token: float | None = None
        self._last_token = request.arrival
        self._inter_token_s: list[float] = []

    def add(self, update: RequestUpdate, now: float) -> bool:
        """Take an update; return whether a stop string ended the output, which the engine cannot know.

        Tokens behind the one that completes a stop string are dropped, as if they had never been generated.
        """
        before = len(self._token_ids)
        matched = self._add_tokens(update)
        self._observe(len(self._token_ids) - before, now)
        if matched is None and update.finish_reason is not None:
            matched = self._flush()
        if matched is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, matched
        else:
            self.finish_reason, self.stop_reason = update.finish_reason, update.stop_reason
        return matched is not None and update.finish_reason is None

    def completion(self, *, delta: bool) -> CompletionOutput:
        """Return the output so far, or with ``delta`` what was not returned before."""
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
            first_token=self._first_token,
            finished=finished,
            inter_token_s=tuple(self._inter_token_s),
        )

    def _add_tokens(self, update: RequestUpdate) -> str | None:
        """Append tokens one by one; return the stop string that one of them completes."""
        stopped_by_token = update.finish_reason is FinishReason.STOP
        for position, token_id in enumerate(update.token_ids):
            self._token_ids.append(token_id)
            self._logprobs.extend(update.logprobs[position : position + 1])
            if stopped_by_token and position == len(update.token_ids) - 1:
                break  # the token that ends an output is not part of its text, as a stop string is not
            matched = self._add_text([token_id])
            if matched is not None:
                return matched
        return None

    def _add_text(self, token_ids: Sequence[int]) -> str | None:
        if self._detokenizer is None:
            return None
        return self._release(self._detokenizer.add(token_ids))

    def _release(self, text: str) -> str | None:
        released, matched = self._stops.add(text, armed=len(self._token_ids) > self.request.params.min_tokens)
        if released:
            self._text.append(released)
        return matched

    def _flush(self) -> str | None:
        """Release what detokeniser and stop strings held back; return the stop string that this completes."""
        if self._detokenizer is None:
            return None
        matched = self._release(self._detokenizer.finish())
        if matched is None:
            self._text.append(self._stops.finish())
        return matched

    def _observe(self, num_tokens: int, now: float) -> None:
        if num_tokens == 0:
            return
        if self._first_token is None:
            self._first_token = now
            num_tokens -= 1  # the first token's wait is not between two tokens
            self._inter_token_s += [0.0] * num_tokens
        else:
            self._inter_token_s += [(now - self._last_token) / num_tokens] * num_tokens
        self._last_token = now
