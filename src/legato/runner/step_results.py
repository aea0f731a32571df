"""From a step's device tensors to its StepOutput, in two halves: copies are enqueued, and read when they have come.

Owns what of a step the host gets to see. The first half leaves nothing behind that a later step overwrites.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from msgspec.structs import replace

from legato.device.host_memory import download, upload
from legato.flow.execution_plan import ExecutionPlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import RequestStep, StepOutput, TokenLogprobs
from legato.runner.round_buffers import RoundBuffers
from legato.runner.step_program import StepProgram
from legato.sampling.logprobs import gather_logprobs, token_logprobs

GatheredLogprobs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""What :func:`~legato.sampling.logprobs.gather_logprobs` returns, on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingResults:
    """Host tensors whose values are on their way."""

    sampled: torch.Tensor  # [num_reqs] int64; of a round [num_reqs, width + 1]: tokens, then how many count
    logprobs: GatheredLogprobs | None
    """Of every request's token, where any request asks for them."""
    prompt_logprobs: dict[int, GatheredLogprobs]
    """By index in the batch: of the prompt tokens that follow the ones fed, where asked for."""


def enqueue_results(program: StepProgram, plan: ExecutionPlan, batch: ScheduledBatch) -> PendingResults:
    """Launch the copies of everything that the batch's requests asked for."""
    buffers, num_reqs = program.buffers, plan.target.shape.num_reqs
    sampled = buffers.sampled[:num_reqs]
    logprobs = None
    if plan.max_logprobs is not None:
        token_ids = sampled if sampled.ndim == 1 else sampled[:, : _width(plan, sampled)].reshape(-1)
        logprobs = _gathered(buffers.logits[: len(token_ids)], token_ids, plan.max_logprobs)
    prompt_logprobs = _enqueue_prompt_logprobs(program, plan, batch) if plan.target.shape.needs_hidden_states else {}
    given = buffers.outcome[:num_reqs] if isinstance(buffers, RoundBuffers) else sampled
    return PendingResults(sampled=download(given), logprobs=logprobs, prompt_logprobs=prompt_logprobs)


def read_results(results: PendingResults, plan: ExecutionPlan, batch: ScheduledBatch) -> StepOutput:
    """Return the values that have come, in the order of the batch's requests."""
    if results.sampled.ndim == 2:
        return _read_round(results, plan, batch)
    steps = [
        RequestStep(request_id=request.request_id, token_ids=(token_id,) if request.samples else ())
        for request, token_id in zip(batch.requests, results.sampled.tolist(), strict=True)
    ]
    if results.logprobs is not None or results.prompt_logprobs:
        steps = _with_logprobs(steps, results, plan, batch)
    return StepOutput(step=plan.step, requests=tuple(steps))


def _read_round(results: PendingResults, plan: ExecutionPlan, batch: ScheduledBatch) -> StepOutput:
    """Return the runs of tokens that have come."""
    width = _width(plan, results.sampled[:, :-1])
    steps = []
    for index, (request, outcome) in enumerate(zip(batch.requests, results.sampled.tolist(), strict=True)):
        token_ids = tuple(outcome[: outcome[-1]]) if request.samples else ()
        wanted = request.params.logprobs
        logprobs: tuple[TokenLogprobs, ...] = ()
        if token_ids and wanted is not None and results.logprobs is not None:
            places = slice(index * width, index * width + len(token_ids))
            chosen, rank, top_ids, top_logprobs = results.logprobs
            own = (chosen[places], rank[places], top_ids[places], top_logprobs[places])
            logprobs = token_logprobs(torch.tensor(token_ids), own, [wanted] * len(token_ids))
        steps.append(
            RequestStep(
                request_id=request.request_id,
                token_ids=token_ids,
                logprobs=logprobs,
                prompt_logprobs=_prompt_logprobs(results, plan, batch, index),
            )
        )
    return StepOutput(step=plan.step, requests=tuple(steps))


def _width(plan: ExecutionPlan, sampled: torch.Tensor) -> int:
    """Return the places of each request in the round's logits; ``sampled`` [num_reqs, most places]."""
    query_len = plan.target.query_len
    return sampled.shape[1] if query_len is None else query_len


def _enqueue_prompt_logprobs(
    program: StepProgram, plan: ExecutionPlan, batch: ScheduledBatch
) -> dict[int, GatheredLogprobs]:
    """The hidden states of all tokens were left behind: no full graph serves a batch that asks for these."""
    gathered = {}
    for index, (request, top_n) in enumerate(zip(batch.requests, plan.prompt_logprobs, strict=True)):
        if top_n is not None:
            begin, targets = plan.query_start_loc[index], request.next_prompt_token_ids
            logits = program.model.compute_logits(program.buffers.hidden[begin : begin + len(targets)])
            gathered[index] = _gathered(logits, upload(np.array(targets), logits.device), top_n)
    return gathered


def _with_logprobs(
    steps: Sequence[RequestStep], results: PendingResults, plan: ExecutionPlan, batch: ScheduledBatch
) -> list[RequestStep]:
    """Return ``steps`` with the log-probabilities that their requests asked for."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    if results.logprobs is not None:
        top_n = [request.params.logprobs or 0 for request in batch.requests]
        logprobs = token_logprobs(results.sampled, results.logprobs, top_n)
    return [
        replace(
            step,
            logprobs=(logprobs[index],) if step.token_ids and request.params.logprobs is not None else (),
            prompt_logprobs=_prompt_logprobs(results, plan, batch, index),
        )
        for index, (step, request) in enumerate(zip(steps, batch.requests, strict=True))
    ]


def _prompt_logprobs(
    results: PendingResults, plan: ExecutionPlan, batch: ScheduledBatch, index: int
) -> tuple[TokenLogprobs, ...]:
    gathered, top_n = results.prompt_logprobs.get(index), plan.prompt_logprobs[index]
    if gathered is None or top_n is None:
        return ()
    targets = batch.requests[index].next_prompt_token_ids
    return token_logprobs(torch.tensor(targets), gathered, [top_n] * len(targets))


def _gathered(logits: torch.Tensor, token_ids: torch.Tensor, top_n: int) -> GatheredLogprobs:
    chosen, rank, top_ids, top_logprobs = gather_logprobs(logits, token_ids, top_n)
    return download(chosen), download(rank), download(top_ids), download(top_logprobs)
