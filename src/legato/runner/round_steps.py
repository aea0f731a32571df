"""What a step of speculative decoding has besides a plain one: its inputs, and the drafter's stages."""

from legato.flow.execution_plan import ExecutionPlan, StagePlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.graphs.captured import GraphStore
from legato.graphs.modes import Stage
from legato.runner.buffers import FROM_STATE
from legato.runner.inputs import StepShape
from legato.runner.round_program import RoundProgram


def fill_round_inputs(program: RoundProgram, plan: ExecutionPlan, batch: ScheduledBatch) -> None:
    """Write what the step's stages read from the host, padded for the largest of them."""
    buffers = program.buffers
    num_reqs = max([plan.num_reqs_padded, *[stage.num_reqs_padded for stage in plan.draft_stages]])
    buffers.rows.fill(plan.rows, num_reqs)
    buffers.num_drafts.fill(plan.num_drafts, num_reqs)
    if _reads_rows_alone(plan):
        return
    token_ids: list[int] = []
    for request in batch.requests:
        token_ids += (FROM_STATE,) * request.query_len if request.is_decode else request.token_ids
    num_tokens = max([plan.num_tokens_padded, *[stage.num_tokens_padded for stage in plan.draft_stages]])
    query_lens = [request.query_len for request in batch.requests]
    buffers.fill_tokens(plan.rows, query_lens, token_ids, num_reqs=num_reqs, num_tokens=num_tokens)
    buffers.fill_round(batch.requests, num_reqs)


def run_draft_stages(program: RoundProgram, graphs: GraphStore, plan: ExecutionPlan) -> None:
    """Do what the drafter does after a target that sampled outside its graph."""
    for stage in plan.draft_stages:
        if stage.key is not None:
            graphs.replay(stage.key, checked=True)
        elif stage.stage is Stage.EXTEND:
            program.extend(_shape(stage, plan.max_query_len))
        else:
            program.propose(_shape(stage, 1))


def _reads_rows_alone(plan: ExecutionPlan) -> bool:
    """Return whether no stage needs its tokens from the host."""
    shapes = [plan.shape if plan.key is None else plan.key]
    shapes += [stage.shape if stage.key is None else stage.key for stage in plan.draft_stages]
    return all(shape.query_len is not None for shape in shapes)


def _shape(stage: StagePlan, max_query_len: int) -> StepShape:
    return StepShape(
        num_tokens=stage.num_tokens_padded,
        num_reqs=stage.num_reqs_padded,
        query_len=stage.shape.query_len,
        max_query_len=max_query_len,
        key_ints=stage.shape.key_ints,
        num_drafts=stage.shape.num_drafts,
    )
