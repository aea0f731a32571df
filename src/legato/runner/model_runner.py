"""ExecutionPlan -> StepOutput. Owns what happens on the device between a plan and its tokens.

A step is *launched* and later *collected* (wait, read). A launch *begins* (apply the row changes, fill the inputs, run
or replay) and *draws* (sample if the graph did not, copy the results); between the two the host may find out which
tokens the guided requests may have. No launch waits for the device, so that the next step can be launched before the
last one is collected.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.device.protocol import Device, Event
from legato.flow.execution_plan import ExecutionPlan, StagePlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import StepOutput
from legato.graphs.key import GraphKey
from legato.graphs.modes import GraphMode, SamplerVariant
from legato.observability.records import StepLog, StepRecord
from legato.observability.trace import NO_TRACE, Tracer
from legato.runner.attention_plans import prepare_step
from legato.runner.buffers import NUM_STAGING_ARRAYS
from legato.runner.host_inputs import fill_inputs
from legato.runner.round_program import RoundProgram
from legato.runner.serving_graphs import ServingGraphs
from legato.runner.step_program import StepProgram, TokenMasks
from legato.runner.step_results import PendingResults, enqueue_results, read_results
from legato.runner.step_shape import StepShape, own_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunStep:
    """A step whose model runs, and whose tokens may not be drawn yet."""

    plan: ExecutionPlan
    batch: ScheduledBatch
    begin_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMasks:
    """Which tokens the guided requests of a step may have."""

    requests_np: np.ndarray  # [num_guided] int64, index in the batch
    bits_np: np.ndarray  # [num_guided, ceil(vocab / 32)] int32, packed: set where allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightStep:
    """A step that was launched, and is to be collected."""

    plan: ExecutionPlan
    batch: ScheduledBatch
    results: PendingResults
    done: Event
    """Passes when the results have come."""
    launch_us: float


class ModelRunner:
    """Runs plans on one device, by graph where the plan names one."""

    def __init__(
        self,
        device: Device,
        program: StepProgram,
        graphs: ServingGraphs,
        log: StepLog,
        trace: Tracer = NO_TRACE,
    ) -> None:
        self._device = device
        self._program = program
        self._rounds = program if isinstance(program, RoundProgram) else None
        """The program where it drafts."""
        self._planner = program.planner
        self.graphs = graphs
        self._log = log
        self._trace = trace
        self._launched: deque[Event] = deque()
        """Ends of the latest steps, as many as there are staging arrays."""

    @property
    def program(self) -> StepProgram:
        """What the device computes in a step."""
        return self._program

    def launch(self, plan: ExecutionPlan, batch: ScheduledBatch) -> InFlightStep:
        """Begin one step without guided requests, and draw its tokens. The host does not wait."""
        return self.draw(self.begin(plan, batch), None)

    @torch.inference_mode()
    def begin(self, plan: ExecutionPlan, batch: ScheduledBatch) -> BegunStep:
        """Begin one step; its graph must not have been stale when it was planned. The host does not wait.

        :meth:`draw` must follow before the next step begins.
        """
        self._wait_for_staging()
        started = time.perf_counter()
        with self._trace.span("prepare"):
            self._program.buffers.swap_staging()
            self._apply_row_changes(batch)
            fill_inputs(self._program.buffers, plan, batch)
            if self._planner is not None:
                prepare_step(self._planner, plan, batch)
        with self._trace.span("forward" if plan.target.key is None else "replay"):
            self._run(plan.target, plan.max_query_len)
        return BegunStep(plan=plan, batch=batch, begin_us=(time.perf_counter() - started) * 1e6)

    @torch.inference_mode()
    def draw(self, begun: BegunStep, masks: HostMasks | None) -> InFlightStep:
        """Draw a begun step's tokens within ``masks``, unless its graph has, and fetch them. The host does not wait."""
        started = time.perf_counter()
        plan, batch = begun.plan, begun.batch
        with self._trace.span("sample"):
            if not plan.sample_in_graph:
                self._sample_eagerly(plan, None if masks is None else self._uploaded(masks))
                for stage in plan.draft_stages:
                    self._run(stage, plan.max_query_len)
            results = enqueue_results(self._program, plan, batch)
        done = self._device.record_event()
        self._launched.append(done)
        launch_us = begun.begin_us + (time.perf_counter() - started) * 1e6
        return InFlightStep(plan=plan, batch=batch, results=results, done=done, launch_us=launch_us)

    def collect(self, step: InFlightStep) -> StepOutput:
        """Wait for a step and return its tokens, in the order of the batch's requests."""
        waiting = time.perf_counter()
        with self._trace.span("wait"):
            step.done.wait()
        started = time.perf_counter()
        self._log.waited_us += (started - waiting) * 1e6
        output = read_results(step.results, step.plan, step.batch)
        host_us = step.launch_us + (time.perf_counter() - started) * 1e6
        for stage in step.plan.stages:
            self._log.add(_record(step.plan.step, stage, host_us))
            host_us = 0.0  # of the drafter's stages it is counted with the target
        return output

    def _wait_for_staging(self) -> None:
        """Make sure of the staging arrays of the step before last; it has been collected, so that this never waits."""
        if len(self._launched) == NUM_STAGING_ARRAYS:
            self._launched.popleft().wait()

    def _apply_row_changes(self, batch: ScheduledBatch) -> None:
        state, sampling = self._program.state, self._program.sampling
        for row in batch.released_rows:
            sampling.release(row)
        admissions = batch.admissions
        state.admit([each.row for each in admissions], [each.num_computed_tokens for each in admissions])
        for admission in admissions:
            sampling.admit(admission.row, admission.request, admission.output_token_ids)
            if self._rounds is not None:
                self._rounds.admit(admission)
        state.append_blocks(batch.block_appends)

    def _run(self, stage: StagePlan, max_query_len: int) -> None:
        if stage.key is None:
            self._program.run(stage.stage, own_shape(stage, max_query_len))
        elif stage.mode is GraphMode.FULL:
            self.graphs.replay(stage.key)
        else:
            with self._program.sizes.of(own_shape(stage, max_query_len)):
                self.graphs.replay(stage.key)

    def _uploaded(self, masks: HostMasks) -> TokenMasks:
        device = self._program.buffers.logits.device
        return TokenMasks(requests=upload(masks.requests_np, device), bits=upload(masks.bits_np, device))

    def _sample_eagerly(self, plan: ExecutionPlan, masks: TokenMasks | None) -> None:
        """Finish a step that ended before sampling, on the real requests alone."""
        target, sampler = plan.target, plan.target.shape.sampler
        uniform = target.shape.query_len if target.key is None or target.mode is GraphMode.FULL else None
        shape = StepShape(
            num_tokens=target.shape.num_tokens,
            num_reqs=target.shape.num_reqs,
            query_len=uniform,
            max_query_len=plan.max_query_len,
        )
        if target.mode is GraphMode.FULL:
            self._program.sample(shape, sampler, masks)
        else:
            self._program.head(shape, sampler, masks)
        if sampler is SamplerVariant.GENERAL:
            null_row = self._program.state.null_row
            rows = [row if samples else null_row for row, samples in zip(plan.rows, plan.samples, strict=True)]
            sampled = self._program.buffers.sampled[: len(rows)]
            if self._rounds is not None:
                sampled = sampled[:, 0]  # no draft of a request that is observed ever stands
            self._program.sampling.observe(upload(np.array(rows), sampled.device), sampled)


_written: Callable[[GraphKey], str] = lru_cache(maxsize=1024)(str)
"""Returns a key as records name it; a decoding engine asks for the same few at every step."""


def _record(step: int, stage: StagePlan, host_us: float) -> StepRecord:
    return StepRecord(
        step=step,
        stage=str(stage.stage),
        requested=str(stage.requested),
        mode=str(stage.mode),
        reason=stage.reason,
        key=None if stage.key is None else _written(stage.key),
        num_reqs=stage.shape.num_reqs,
        num_tokens=stage.shape.num_tokens,
        num_tokens_padded=stage.num_tokens_padded,
        host_us=host_us,
        device_us=None,
    )
