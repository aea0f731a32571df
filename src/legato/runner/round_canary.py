"""What a graph of a round, or of a part of one, is proven with beside what every graph is."""

from itertools import islice

import torch

from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, Stage
from legato.runner.round_program import RoundProgram
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticBatch

_PERIOD = 7
"""Of a made-up history, in which a drafter that looks up finds something."""
_NUM_HISTORIES = 8
"""Requests that have one: each is a copy of its own."""


def install_round(
    program: RoundProgram, key: GraphKey, shape: StepShape, batch: SyntheticBatch, *, poisoned: bool
) -> None:
    """Give the drafter the requests' histories, and a drafter's stage what the stages before it leave."""
    program.forget()
    known = [sum(pair) for pair in zip(batch.computed, batch.query_lens, strict=True)]
    for row, num_tokens in islice(zip(batch.rows, known, strict=True), _NUM_HISTORIES):
        program.drafter.admit(row, [position % _PERIOD for position in range(num_tokens)])
    state = program.state
    state.drafts[state.null_row] = program.buffers.logits.shape[1] - 1 if poisoned else 0
    if key.stage in (Stage.EXTEND, Stage.DRAFT):
        _hand_over(program, shape, batch, poisoned=poisoned)


def round_results(program: RoundProgram, key: GraphKey, *, num_reqs: int, num_tokens: int) -> dict[str, torch.Tensor]:
    """Return what the run left for the real requests."""
    buffers, state = program.buffers, program.state
    drafts = {"drafts": state.drafts[: state.null_row].clone()}
    if key.stage is Stage.EXTEND:
        return {"extended": buffers.extended[:num_tokens].clone()}
    if key.stage is Stage.DRAFT:
        return drafts
    if key.mode is not GraphMode.FULL:
        return {name: getattr(buffers, name)[:num_tokens].clone() for name in ("hidden", "auxiliary")}
    width = key.query_len or buffers.sampled.shape[1]
    results = drafts if key.sampler is not None else {}
    if key.sampler is not None:
        results["sampled"] = buffers.sampled[:num_reqs, :width].clone()
        results["num_sampled"] = buffers.num_sampled[:num_reqs].clone()
    return results | {"logits": buffers.logits[: num_reqs * width].clone()}


def _hand_over(program: RoundProgram, shape: StepShape, batch: SyntheticBatch, *, poisoned: bool) -> None:
    """Leave what a target with its sampling would: one new token for each request, and noise for hidden states."""
    buffers = program.buffers
    device = buffers.outcome.device
    generator = torch.Generator(device).manual_seed(1)
    for tensor in (buffers.hidden, buffers.auxiliary, buffers.extended):
        noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype, device=device)
        tensor.copy_(noise)
    buffers.outcome.fill_(buffers.logits.shape[1] - 1 if poisoned else 0)
    buffers.num_sampled.fill_(1)
    buffers.next_positions.fill_(1 if poisoned else 0)
    buffers.last_places.fill_(1 if poisoned else 0)
    ends = torch.tensor(batch.computed) + torch.tensor(batch.query_lens)
    num_reqs = len(batch.rows)
    buffers.sampled[:num_reqs] = (ends % _PERIOD).to(device).unsqueeze(1)
    buffers.next_positions[:num_reqs] = ends.to(device)
    buffers.last_places[:num_reqs] = (torch.tensor(batch.query_lens).cumsum(0) - 1).to(device)
