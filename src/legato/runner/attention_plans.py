"""Telling a backend that plans on the host of the batch that comes next. Owns what it is told; plans nothing itself."""

from legato.attention.planning import PlanningBackend, PreparedBatch
from legato.flow.execution_plan import ExecutionPlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.graphs.modes import GraphMode
from legato.runner.step_shape import StepShape
from legato.runner.synthetic import SyntheticBatch


def prepare_step(planner: PlanningBackend, plan: ExecutionPlan, batch: ScheduledBatch) -> None:
    """Announce a scheduled batch, as its step is launched: padded if its attention is, in a full graph alone."""
    target = plan.target
    query_len, num_reqs = target.shape.query_len, target.shape.num_reqs
    if target.mode is GraphMode.FULL:
        query_len, num_reqs = target.query_len, target.num_reqs_padded
    if planner.plans(query_len):
        planner.prepare(
            PreparedBatch(
                num_reqs=num_reqs,
                query_len=query_len,
                query_lens=tuple([request.query_len for request in batch.requests]),
                seq_lens=tuple([request.seq_len for request in batch.requests]),
            )
        )


def prepare_made_up(planner: PlanningBackend | None, shape: StepShape, batch: SyntheticBatch) -> None:
    """Announce a made-up batch, whose attention has ``shape``; None: the backend needs no plan."""
    if planner is not None and planner.plans(shape.query_len):
        seq_lens = [sum(pair) for pair in zip(batch.computed, batch.query_lens, strict=True)]
        planner.prepare(
            PreparedBatch(
                num_reqs=shape.num_reqs,
                query_len=shape.query_len,
                query_lens=batch.query_lens,
                seq_lens=tuple(seq_lens),
            )
        )
