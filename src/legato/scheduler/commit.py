"""What a step's result means for one request: its new tokens, and whether it ends. Knows no other request."""

from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.scheduled_batch import ScheduledRequest
from legato.flow.step_output import RequestStep, TokenLogprobs
from legato.scheduler.request_state import RequestState


def apply_result(state: RequestState, scheduled: ScheduledRequest, result: RequestStep) -> RequestUpdate | None:
    """Advance the request by what the step computed; return what the frontend is told, None where nothing is new.

    The token that ends an output is part of the update; tokens after it are dropped.
    """
    state.num_pending_tokens -= scheduled.samples
    if scheduled.num_drafts and state.row >= 0:
        state.num_computed_tokens -= 1 + scheduled.num_drafts - len(result.token_ids)
    prompt_logprobs = _new_prompt_logprobs(state, scheduled, result) if result.prompt_logprobs else ()
    token_ids, finish_reason = _accept(state, result.token_ids)
    if not token_ids and not prompt_logprobs:
        return None
    admitted, state.admitted = state.admitted, None
    return RequestUpdate(
        request_id=scheduled.request_id,
        token_ids=token_ids,
        logprobs=result.logprobs[: len(token_ids)] if result.logprobs else (),
        prompt_logprobs=prompt_logprobs,
        num_cached_tokens=state.num_cached_tokens,
        admitted=admitted,
        finish_reason=finish_reason,
        stop_reason=_stop_reason(state) if finish_reason is FinishReason.STOP else None,
    )


def _accept(state: RequestState, token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """Append new tokens up to the one that ends the output, if one does; return them, and why it ended."""
    known = state.token_ids
    num_before = len(known)
    known += token_ids
    if len(known) < state.max_num_tokens and state.request.stop_token_ids.isdisjoint(token_ids):
        return token_ids, None
    num_accepted, finish_reason = _end_of_output(state, token_ids, num_before)
    del known[num_before + num_accepted :]
    return token_ids[:num_accepted], finish_reason


def _end_of_output(state: RequestState, token_ids: tuple[int, ...], num_before: int) -> tuple[int, FinishReason | None]:
    """Return how many of ``token_ids`` belong to the output, and why it ends with the last of them."""
    stop_token_ids, min_tokens = state.request.stop_token_ids, state.request.params.min_tokens
    for num_accepted, token_id in enumerate(token_ids, start=1):
        num_tokens = num_before + num_accepted
        if token_id in stop_token_ids and num_tokens - state.num_prompt_tokens > min_tokens:
            return num_accepted, FinishReason.STOP
        if num_tokens >= state.max_num_tokens:
            return num_accepted, FinishReason.LENGTH
    return len(token_ids), None


def _stop_reason(state: RequestState) -> int | None:
    """Return the token that ended the output where the user named it; the model's own end tokens are no news."""
    last = state.token_ids[-1]
    return last if last in state.request.params.stop_token_ids else None


def _new_prompt_logprobs(
    state: RequestState, scheduled: ScheduledRequest, result: RequestStep
) -> tuple[TokenLogprobs, ...]:
    """Return those not delivered before: a prompt that is computed again after preemption yields some twice."""
    # The first entry belongs to the token after the first one fed.
    num_known = max(0, state.num_prompt_logprobs - scheduled.num_computed_tokens)
    new = result.prompt_logprobs[num_known:]
    state.num_prompt_logprobs += len(new)
    return new
