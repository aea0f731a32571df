"""What a step's result means for one request: its new tokens, and whether it ends. Knows no other request."""

from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.scheduled_batch import ScheduledRequest
from legato.flow.step_output import RequestStep, TokenLogprobs
from legato.scheduler.request_state import RequestState


def apply_result(
    state: RequestState, scheduled: ScheduledRequest, result: RequestStep, max_model_len: int
) -> RequestUpdate | None:
    """Advance the request by what the step computed; return what the frontend is told, None where nothing is new.

    The token that ends an output is part of the update; tokens after it are dropped.
    """
    state.num_pending_tokens -= scheduled.samples
    prompt_logprobs = _new_prompt_logprobs(state, scheduled, result) if result.prompt_logprobs else ()
    finish_reason: FinishReason | None = None
    num_accepted = 0
    for token_id in result.token_ids:
        state.token_ids.append(token_id)
        num_accepted += 1
        finish_reason = _finish_reason(state, token_id, max_model_len)
        if finish_reason is not None:
            break
    if num_accepted == 0 and not prompt_logprobs:
        return None
    return RequestUpdate(
        request_id=state.request.request_id,
        token_ids=result.token_ids[:num_accepted],
        logprobs=result.logprobs[:num_accepted],
        prompt_logprobs=prompt_logprobs,
        num_cached_tokens=state.num_cached_tokens,
        finish_reason=finish_reason,
        stop_reason=_stop_reason(state) if finish_reason is FinishReason.STOP else None,
    )


def _finish_reason(state: RequestState, token_id: int, max_model_len: int) -> FinishReason | None:
    request = state.request
    num_output_tokens = len(state.token_ids) - state.num_prompt_tokens
    if token_id in request.stop_token_ids and num_output_tokens > request.params.min_tokens:
        return FinishReason.STOP
    return FinishReason.LENGTH if state.is_full(len(state.token_ids), max_model_len) else None


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
