"""The step being put together: what is in it so far, and how many tokens may still join."""

from legato.flow.scheduled_batch import PENDING, Admission, BlockAppend, ScheduledBatch, ScheduledRequest
from legato.graphs.modes import SamplerVariant
from legato.scheduler.request_state import RequestState


class BatchDraft:
    """Collects one step's parts within a budget of tokens."""

    def __init__(self, max_num_batched_tokens: int, num_drafts: int | None = None) -> None:
        """``num_drafts``: drafts of each decode; None: there is no drafter."""
        self.num_tokens_left = self._most_tokens = max_num_batched_tokens
        self.num_drafts = num_drafts
        self.states: list[RequestState] = []
        self._requests: list[ScheduledRequest] = []
        self._admissions: list[Admission] = []
        self._block_appends: list[BlockAppend] = []

    @property
    def num_tokens(self) -> int:
        """How many tokens the step has so far."""
        return self._most_tokens - self.num_tokens_left

    def limit(self, num_tokens: int) -> None:
        """Let the step have so many tokens at most, those that it has so far among them."""
        self.num_tokens_left = num_tokens - self.num_tokens
        self._most_tokens = num_tokens

    def leave_to_the_next(self, num_tokens: int) -> None:
        """Feed the request that was fed last so many tokens less, and nobody more; a prefill must have more than them.

        Else the step stays as it is.
        """
        last, state = self._requests[-1], self.states[-1]
        if last.is_decode or last.query_len <= num_tokens:
            return
        self._requests.pop()
        self.states.pop()
        state.num_computed_tokens = last.num_computed_tokens
        state.num_pending_tokens -= last.samples
        self.num_tokens_left += last.query_len
        self.limit(self.num_tokens + last.query_len - num_tokens)
        self.feed(state)

    def feed(self, state: RequestState) -> None:
        """Feed as many of the request's next tokens as the budget allows."""
        if self.num_drafts is not None and state.is_decoding:
            self._feed_run(state, self.num_drafts)
            return
        start = state.num_computed_tokens
        num_tokens = state.num_tokens
        end = start + self.num_tokens_left
        if end > num_tokens:
            end = num_tokens
        samples = end == num_tokens
        is_decode = state.is_decoding
        request = state.request
        num_output_tokens = num_tokens - state.num_prompt_tokens
        self._requests.append(
            ScheduledRequest(
                request_id=request.request_id,
                row=state.row,
                num_computed_tokens=start,
                token_ids=(PENDING,) * (end - start) if is_decode else tuple(state.token_ids[start:end]),
                is_decode=is_decode,
                samples=samples,
                num_output_tokens=num_output_tokens,
                sampler=state.sampler if num_output_tokens >= request.params.min_tokens else state.early_sampler,
                params=request.params,
                next_prompt_token_ids=() if is_decode else state.prompt_token_ids_after(start, end),
                next_token_id=PENDING if samples else state.token_ids[end],
            )
        )
        state.num_computed_tokens = end
        state.num_pending_tokens += samples
        self.states.append(state)
        self.num_tokens_left -= end - start

    def _feed_run(self, state: RequestState, num_drafts: int) -> None:
        """Feed a decode's next token and its drafts; all decodes of a step have as many, which makes it uniform.

        Where sampling depends on every token before, and where the output is guided, each token waits for the one
        before: no draft may stand.
        """
        request = state.request
        num_output_tokens = state.num_tokens - state.num_prompt_tokens
        sampler = state.sampler if num_output_tokens >= request.params.min_tokens else state.early_sampler
        waits = sampler is SamplerVariant.GENERAL or request.params.guided is not None
        may_stand = 0 if waits else num_drafts
        self._requests.append(
            ScheduledRequest(
                request_id=request.request_id,
                row=state.row,
                num_computed_tokens=state.num_computed_tokens,
                token_ids=(PENDING,) * (1 + num_drafts),
                is_decode=True,
                samples=True,
                num_output_tokens=num_output_tokens,
                sampler=sampler,
                params=request.params,
                num_drafts=may_stand,
            )
        )
        state.num_computed_tokens += 1 + may_stand
        state.num_pending_tokens += 1
        self.states.append(state)
        self.num_tokens_left -= 1 + num_drafts

    def admit(self, state: RequestState) -> None:
        """Record that the request has taken its row, with all blocks it holds."""
        self._admissions.append(
            Admission(
                row=state.row,
                request=state.request,
                output_token_ids=tuple(state.token_ids[state.num_prompt_tokens :]),
                num_computed_tokens=state.num_computed_tokens,
            )
        )
        self.append_blocks(state, 0)

    def append_blocks(self, state: RequestState, start: int) -> None:
        """Record the blocks that the request got from index ``start`` on."""
        block_ids = tuple(state.table.block_ids[start:])
        self._block_appends.append(BlockAppend(row=state.row, start=start, block_ids=block_ids))

    def seal(self, step: int, released_rows: tuple[int, ...], *, may_be_guided: bool) -> ScheduledBatch:
        """Return the finished batch; ``may_be_guided``: some request is, so that it is worth looking."""
        return ScheduledBatch(
            step=step,
            requests=tuple(self._requests),
            released_rows=released_rows,
            admissions=tuple(self._admissions),
            block_appends=tuple(self._block_appends),
            num_drafts=self.num_drafts,
            guided=may_be_guided
            and any(request.params.guided is not None for request in self._requests if request.samples),
        )
