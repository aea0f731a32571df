"""ExecutionPlan -> StepOutput. Owns what happens on the device between a plan and its tokens.

A step reads: apply the row changes, fill the inputs, run or replay, sample if the graph did not, read the results.
"""

import time
from collections.abc import Sequence

import torch

from legato.device.protocol import Device
from legato.flow.execution_plan import ExecutionPlan
from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import RequestStep, StepOutput, TokenLogprobs
from legato.graphs.captured import GraphStore
from legato.graphs.catalog import Catalog
from legato.graphs.epoch import BufferEpoch
from legato.graphs.modes import GraphMode, SamplerVariant
from legato.observability.reasons import Reason
from legato.observability.records import StepLog, StepRecord
from legato.runner.buffers import FROM_STATE
from legato.runner.graph_capture import CaptureProgress, DroppedKey, GraphCapturer, shape_of
from legato.runner.inputs import StepShape
from legato.runner.step_program import StepProgram
from legato.runner.synthetic import SyntheticLimits
from legato.sampling.logprobs import gather_logprobs, token_logprobs


class ModelRunner:
    """Runs plans on one device, by graph where the plan names one."""

    def __init__(
        self, device: Device, program: StepProgram, catalog: Catalog, limits: SyntheticLimits, log: StepLog
    ) -> None:
        self._device = device
        self._program = program
        self._limits = limits
        self._log = log
        epoch = BufferEpoch()
        epoch.watch(program.buffers.tensors)
        epoch.watch(program.state.tensors)
        epoch.watch(lambda: {f"{i} key": cache.key for i, cache in program.caches.items()})
        epoch.watch(lambda: {f"{i} value": cache.value for i, cache in program.caches.items()})
        self._epoch = epoch
        self.graphs = GraphStore(epoch)
        self.catalog = catalog
        """Keys that may be replayed; empty of graphs until :meth:`capture`."""

    def capture(self, progress: CaptureProgress) -> list[DroppedKey]:
        """Capture and prove every key of the catalog; return those that cannot serve. No request may be in flight."""
        capturer = GraphCapturer(self._device, self._program, self.graphs, self._epoch, self._limits)
        self.catalog, dropped = capturer.capture_all(self.catalog, progress)
        return dropped

    def drop_stale_graphs(self) -> int:
        """Take graphs whose buffers have moved out of the catalog; return how many."""
        stale = self.graphs.stale_keys()
        for key in stale:
            self.catalog = self.catalog.without(key, Reason.STALE_EPOCH)
            self.graphs.drop(key)
        return len(stale)

    @torch.inference_mode()
    def execute(self, plan: ExecutionPlan, batch: ScheduledBatch) -> StepOutput:
        """Run one step and return its tokens, in the order of the batch's requests."""
        started = time.perf_counter()
        self._apply_row_changes(batch)
        shape = self._shape(plan)
        self._fill_inputs(plan, batch, shape)
        self._run(plan, shape)
        if not plan.sample_in_graph:
            self._sample_eagerly(plan)
        output = self._read(plan, batch)
        self._log.add(_record(plan, (time.perf_counter() - started) * 1e6))
        return output

    def _apply_row_changes(self, batch: ScheduledBatch) -> None:
        state, sampling = self._program.state, self._program.sampling
        for row in batch.released_rows:
            sampling.release(row)
        for admission in batch.admissions:
            state.admit(admission.row, admission.num_computed_tokens)
            sampling.admit(admission.row, admission.request, admission.output_token_ids)
        state.append_blocks(batch.block_appends)

    def _shape(self, plan: ExecutionPlan) -> StepShape:
        if plan.key is not None:
            return shape_of(plan.key, self._limits.max_num_seqs)
        return StepShape(
            num_tokens=plan.num_tokens_padded,
            num_reqs=plan.num_reqs_padded,
            query_len=plan.shape.query_len,
            max_query_len=plan.max_query_len,
            key_ints=plan.shape.key_ints,
        )

    def _fill_inputs(self, plan: ExecutionPlan, batch: ScheduledBatch, shape: StepShape) -> None:
        buffers = self._program.buffers
        buffers.rows.fill(plan.rows, shape.num_reqs)
        if shape.query_len == 1:
            return
        token_ids: list[int] = []
        for request in batch.requests:
            token_ids += (FROM_STATE,) if request.is_decode else request.token_ids
        query_lens = [request.query_len for request in batch.requests]
        buffers.fill_tokens(plan.rows, query_lens, token_ids, num_reqs=shape.num_reqs, num_tokens=shape.num_tokens)

    def _run(self, plan: ExecutionPlan, shape: StepShape) -> None:
        if plan.key is not None:
            self.graphs.replay(plan.key)
        else:
            self._program.forward(shape)

    def _sample_eagerly(self, plan: ExecutionPlan) -> None:
        """Finish a step that ended before sampling, on the real requests alone."""
        uniform = plan.shape.query_len if plan.key is None or plan.key.mode is GraphMode.FULL else None
        shape = StepShape(
            num_tokens=plan.shape.num_tokens,
            num_reqs=plan.shape.num_reqs,
            query_len=uniform,
            max_query_len=plan.max_query_len,
        )
        if plan.mode is GraphMode.FULL:
            self._program.sample(shape, plan.sampler)
        else:
            self._program.head(shape, plan.sampler)
        if plan.sampler is SamplerVariant.GENERAL:
            null_row = self._program.state.null_row
            rows = [row if samples else null_row for row, samples in zip(plan.rows, plan.samples, strict=True)]
            sampled = self._program.buffers.sampled
            self._program.sampling.observe(torch.tensor(rows, device=sampled.device), sampled[: len(rows)])

    def _read(self, plan: ExecutionPlan, batch: ScheduledBatch) -> StepOutput:
        sampled = self._program.buffers.sampled[: plan.shape.num_reqs]
        token_ids = sampled.tolist()
        logprobs = self._logprobs(plan, batch, sampled)
        steps = []
        for index, request in enumerate(batch.requests):
            wanted = request.samples and request.params.logprobs is not None
            steps.append(
                RequestStep(
                    request_id=request.request_id,
                    token_ids=(token_ids[index],) if request.samples else (),
                    logprobs=(logprobs[index],) if wanted else (),
                    prompt_logprobs=self._prompt_logprobs(plan, batch, index),
                )
            )
        return StepOutput(step=plan.step, requests=tuple(steps))

    def _logprobs(self, plan: ExecutionPlan, batch: ScheduledBatch, sampled: torch.Tensor) -> Sequence[TokenLogprobs]:
        """Return log-probabilities of every request's token, where any request asks for them."""
        if plan.max_logprobs is None:
            return ()
        gathered = gather_logprobs(self._program.buffers.logits[: len(sampled)], sampled, plan.max_logprobs)
        return token_logprobs(sampled, gathered, [request.params.logprobs or 0 for request in batch.requests])

    def _prompt_logprobs(self, plan: ExecutionPlan, batch: ScheduledBatch, index: int) -> tuple[TokenLogprobs, ...]:
        """Return log-probabilities of the prompt tokens after the ones fed, from the hidden states left behind."""
        top_n = plan.prompt_logprobs[index]
        request = batch.requests[index]
        targets = request.next_prompt_token_ids
        if top_n is None or not targets:
            return ()
        begin = plan.query_start_loc[index]
        hidden = self._program.buffers.hidden[begin : begin + len(targets)]
        logits = self._program.model.compute_logits(hidden)
        token_ids = torch.tensor(targets, device=logits.device)
        return token_logprobs(token_ids, gather_logprobs(logits, token_ids, top_n), [top_n] * len(targets))


def _record(plan: ExecutionPlan, host_us: float) -> StepRecord:
    return StepRecord(
        step=plan.step,
        stage="target",
        requested=str(plan.requested),
        mode=str(plan.mode),
        reason=plan.reason,
        key=None if plan.key is None else str(plan.key),
        num_reqs=plan.shape.num_reqs,
        num_tokens=plan.shape.num_tokens,
        num_tokens_padded=plan.num_tokens_padded,
        host_us=host_us,
        device_us=None,
    )
