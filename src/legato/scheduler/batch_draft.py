"""The step being put together: what is in it so far, and how many tokens may still join."""

from legato.flow.scheduled_batch import PENDING, Admission, BlockAppend, ScheduledBatch, ScheduledRequest
from legato.scheduler.request_state import RequestState


class BatchDraft:
    """Collects one step's parts within a budget of tokens."""

    def __init__(self, max_num_batched_tokens: int) -> None:
        self.num_tokens_left = max_num_batched_tokens
        self.states: list[RequestState] = []
        self._requests: list[ScheduledRequest] = []
        self._admissions: list[Admission] = []
        self._block_appends: list[BlockAppend] = []

    def feed(self, state: RequestState) -> None:
        """Feed as many of the request's next tokens as the budget allows."""
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
            )
        )
        state.num_computed_tokens = end
        state.num_pending_tokens += samples
        self.states.append(state)
        self.num_tokens_left -= end - start

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

    def seal(self, step: int, released_rows: tuple[int, ...]) -> ScheduledBatch:
        """Return the finished batch."""
        return ScheduledBatch(
            step=step,
            requests=tuple(self._requests),
            released_rows=released_rows,
            admissions=tuple(self._admissions),
            block_appends=tuple(self._block_appends),
        )
