"""What an engine says to some prompts, and how two engines' words are compared. Owns near-ties and tolerances of text.

Only the engine's public interface is used, so that everything between a request and its tokens is part of the test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from legato.engine.core import EngineCore
from legato.engine.input_processor import InputProcessor, Prompt
from legato.errors import EngineDeadError
from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams
from legato.flow.step_output import TokenLogprobs
from legato.observability.records import StepRecord
from legato.sampling.near_ties import NEAR_TIE, gap, least, scale, scores, tolerance

_TOP_TOKENS = 8
"""Best tokens whose log-probabilities are compared at each position."""
_HEAD_START_STEPS = 2
"""Steps before the second half of the prompts comes, so that steps mix prefill and decode."""


@dataclass(slots=True)
class Output:
    """One request's tokens, and the steps that they came from."""

    num_prompt_tokens: int
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Where one output first departs from the other, beyond the tolerance."""

    request: int
    position: int
    record: StepRecord
    """Of the step that gave the token in the engine under test."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two transcripts side by side."""

    num_tokens: int
    num_near_ties: int
    max_logprob_difference: float
    departure: Departure | None
    """The earliest in the order of steps; None: there is none."""


def requests_for(core: EngineCore, prompts: Sequence[Prompt], max_tokens: int) -> list[Request]:
    """Return one greedy request per prompt. Raises RequestError for one that this engine cannot serve."""
    params = SamplingParams(
        temperature=0.0, max_tokens=max_tokens, ignore_eos=True, logprobs=min(_TOP_TOKENS, core.config.max_logprobs)
    )
    processor = InputProcessor(core.tokenizer, core.config)
    return [
        request
        for number, prompt in enumerate(prompts)
        for request in processor.process(f"verify-{number}", prompt, params, arrival=float(number))
    ]


def transcribe(core: EngineCore, requests: Sequence[Request], until_step: int | None = None) -> list[Output]:
    """Run requests to their end, or up to a step, and return their outputs in order.

    Raises EngineDeadError where a request ends with an error.
    """
    outputs = {request.request_id: Output(num_prompt_tokens=len(request.prompt_token_ids)) for request in requests}
    half = -(-len(requests) // 2)
    for request in requests[:half]:
        core.add(request)
    late, num_calls = list(requests[half:]), 0
    while core.has_work:
        num_before = core.step_log.steps.total()
        updates = core.step()
        num_new = core.step_log.steps.total() - num_before
        record = core.step_log.recent[-num_new] if num_new else None
        for update in updates:
            if update.error is not None or record is None:
                raise EngineDeadError("a prompt of the verification failed", {"found": update.error})
            outputs[update.request_id].logprobs += update.logprobs
            outputs[update.request_id].records += [record] * len(update.token_ids)
        if until_step is not None and record is not None and record.step >= until_step:
            break
        num_calls += 1
        if num_calls == _HEAD_START_STEPS:
            for request in late:
                core.add(request)
            late = []
    return list(outputs.values())


def compare(
    expected: Sequence[Output], given: Sequence[Output], *, dtype: str, vocab_size: int, seen: float = 0.0
) -> Comparison:
    """Compare token by token, each output up to its first other token.

    ``seen``: the most by which a right computation was apart from ``expected``. Another one may be as far on the other
    side of what is exact, so that twice as much is allowed where that is more than the tolerance of ``dtype``.
    """
    num_tokens = num_near_ties = 0
    most = 0.0
    departures = []
    for number, (wanted, got) in enumerate(zip(expected, given, strict=True)):
        for position, (one, other) in enumerate(zip(wanted.logprobs, got.logprobs, strict=True)):
            num_tokens += 1
            allowed = max(tolerance(dtype, scale(one, vocab_size)), 2 * seen)
            apart = _most_apart(one, other)
            behind = gap(one, other.token_id, unnamed=least(one))  # of one that is not named: at least
            detail = None
            if behind > NEAR_TIE * allowed:
                detail = f"token {other.token_id} in place of {one.token_id}, which scores {behind:.3g} more"
            elif apart > allowed:
                detail = f"log-probabilities are {apart:.3g} apart, {allowed:.3g} is allowed"
            if detail is not None:
                departures.append(
                    Departure(request=number, position=position, record=got.records[position], detail=detail)
                )
                break
            most = max(most, apart)
            if one.token_id != other.token_id:
                num_near_ties += 1
                break
    return Comparison(
        num_tokens=num_tokens,
        num_near_ties=num_near_ties,
        max_logprob_difference=most,
        departure=min(departures, key=lambda found: found.record.step, default=None),
    )


def _most_apart(one: TokenLogprobs, other: TokenLogprobs) -> float:
    """Return the largest difference that is known of; infinite where no token is named by both, or one is not a number.

    Of a token that one side does not name it is known that it scores no more there than all that are.
    """
    mine, theirs = scores(one), scores(other)
    shared = mine.keys() & theirs.keys()
    if not shared:
        return math.inf
    apart = [abs(mine[token] - theirs[token]) for token in shared]
    apart += [mine[token] - least(other) for token in mine.keys() - shared]
    apart += [theirs[token] - least(one) for token in theirs.keys() - shared]
    return max(math.inf if math.isnan(value) else value for value in apart)
