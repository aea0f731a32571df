"""What rounds cost on this device: made-up decodes on the engine's own path, a few steps of each kind.

Owns the batches and the order of measuring. Steps follow each other as they do in serving, each launched while the one
before it runs, so that where the host limits, its time is what counts. No request may be in flight.
"""

from collections.abc import Sequence

import torch

from legato.device.protocol import Device
from legato.flow.sampling_params import SamplingParams
from legato.flow.scheduled_batch import PENDING, BlockAppend, ScheduledBatch, ScheduledRequest
from legato.graphs.modes import SamplerVariant
from legato.plan.planner import Planner
from legato.runner.model_runner import ModelRunner
from legato.scheduler.round_costs import RoundCosts

_CONTEXT = 512
"""Tokens before a step, where sequences may be as long."""
_WARM_UP = 2
_MOST_STEPS = 6
_MS_EACH = 40.0
"""Measured milliseconds of one kind of step, about, where the machine is quiet."""
_AGREEMENT = 1.02
"""How far the two quickest series may be apart; until then there is another one, up to so many:"""
_MOST_SERIES = 8


@torch.inference_mode()
def measure_round_costs(
    device: Device, runner: ModelRunner, planner: Planner, numbers_of_drafts: Sequence[int]
) -> RoundCosts:
    """Return milliseconds of a step in which all decode greedily, for powers of two of them and for the most."""
    sizes = _sizes(runner.graphs.limits.max_num_seqs)
    ms = tuple(
        tuple(_step_ms(device, runner, planner, num_reqs, num_drafts) for num_drafts in numbers_of_drafts)
        for num_reqs in sizes
    )
    runner.graphs.capturer().clear()
    return RoundCosts(sizes=sizes, num_drafts=tuple(numbers_of_drafts), ms=ms)


def _sizes(most: int) -> tuple[int, ...]:
    return (*[1 << power for power in range(most.bit_length()) if 1 << power < most], most)


def _step_ms(device: Device, runner: ModelRunner, planner: Planner, num_reqs: int, num_drafts: int) -> float:
    """Return the milliseconds of one step in the quickest series, once another one has nearly said so too."""
    most_steps = max(1, min(_MOST_STEPS, runner.graphs.limits.max_model_len // (1 + num_drafts)))

    def ms_each(count: int) -> float:
        batch = _batch(runner, num_reqs, num_drafts, most_steps * (1 + num_drafts))
        plan = planner.plan(batch, runner.graphs.catalog)

        def steps() -> None:
            for _ in range(count):
                runner.launch(plan, batch)

        return device.elapsed_ms(steps) / count

    first = min(ms_each(1) for _ in range(_WARM_UP))
    count = max(1, min(most_steps, round(_MS_EACH / 2 / first)))
    series = sorted(ms_each(count) for _ in range(2))
    while series[1] > series[0] * _AGREEMENT and len(series) < _MOST_SERIES:
        series = sorted([*series, ms_each(count)])
    return series[0]


def _batch(runner: ModelRunner, num_reqs: int, num_drafts: int, longest: int) -> ScheduledBatch:
    """Return decodes on the first rows, whose state is written; they grow by ``longest`` tokens at most."""
    limits, state = runner.graphs.limits, runner.program.state
    blocks_each = (limits.num_blocks - 1) // num_reqs
    room = min(blocks_each * limits.block_size, limits.max_model_len) - longest - num_drafts
    context = max(1, min(_CONTEXT, room))
    wanted = -(-(context + longest + num_drafts) // limits.block_size)
    num_blocks = min(blocks_each, wanted, state.block_table.shape[1])
    rows = range(num_reqs)
    state.admit(rows, [context] * num_reqs)
    state.append_blocks(
        BlockAppend(row=row, start=0, block_ids=tuple(range(1 + row * num_blocks, 1 + (row + 1) * num_blocks)))
        for row in rows
    )
    requests = tuple(
        ScheduledRequest(
            request_id=f"timed-{row}",
            row=row,
            num_computed_tokens=context,
            token_ids=(PENDING,) * (1 + num_drafts),
            is_decode=True,
            samples=True,
            num_output_tokens=1,
            sampler=SamplerVariant.GREEDY,
            params=SamplingParams(temperature=0.0),
            num_drafts=num_drafts,
        )
        for row in rows
    )
    return ScheduledBatch(
        step=0, requests=requests, released_rows=(), admissions=(), block_appends=(), num_drafts=num_drafts
    )
