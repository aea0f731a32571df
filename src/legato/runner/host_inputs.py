"""What the host writes for a step, into the buffers that its stages read."""

from legato.flow.execution_plan import ExecutionPlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.runner.buffers import FROM_STATE, StepBuffers
from legato.runner.round_buffers import RoundBuffers


def fill_inputs(buffers: StepBuffers, plan: ExecutionPlan, batch: ScheduledBatch) -> None:
    """Write what the plan's stages read from the host, padded for the largest of them."""
    stages = plan.stages
    num_reqs = max([stage.num_reqs_padded for stage in stages])
    buffers.rows.fill(plan.rows, num_reqs)
    if isinstance(buffers, RoundBuffers):
        buffers.num_drafts.fill(plan.num_drafts, num_reqs)
    if None not in [stage.query_len for stage in stages]:
        return  # the rows have everything else
    token_ids: list[int] = []
    for request in batch.requests:
        token_ids += (FROM_STATE,) * request.query_len if request.is_decode else request.token_ids
    query_lens = [request.query_len for request in batch.requests]
    num_tokens = max([stage.num_tokens_padded for stage in stages])
    buffers.fill_tokens(plan.rows, query_lens, token_ids, num_reqs=num_reqs, num_tokens=num_tokens)
    if isinstance(buffers, RoundBuffers):
        buffers.fill_round(batch.requests, num_reqs)
