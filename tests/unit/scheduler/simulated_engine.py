"""A scheduler with a simulated device: steps as the engine does, checks every step, and keeps what each request got.

With ``overlap`` a step is formed, and run by the device, before the one before it is committed.
"""

from collections import Counter, deque
from collections.abc import Sequence

from simulated_device import SimulatedDevice, output_alone

from legato.config.engine import CacheConfig, SchedulerConfig
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import StepOutput
from legato.kvcache.spec import FullAttentionSpec, LayerGroup
from legato.scheduler.graph_fit import ANY_SIZE, GraphFit
from legato.scheduler.scheduler import Scheduler

FULL_ATTENTION = LayerGroup(name="full", layers=(0, 1), spec=FullAttentionSpec(num_kv_heads=1, head_dim=4))


class SimulatedEngine:
    def __init__(
        self,
        *,
        block_size: int = 4,
        num_blocks: int = 65,
        prefix_caching: bool = True,
        max_model_len: int = 64,
        max_num_seqs: int = 4,
        max_num_batched_tokens: int = 32,
        policy: str = "fcfs",
        max_queue: int = 100,
        layer_groups: Sequence[LayerGroup] = (FULL_ATTENTION,),
        overlap: bool = False,
        num_drafts: int | None = None,
        fit: GraphFit = ANY_SIZE,
    ) -> None:
        self.max_model_len = max_model_len
        self.overlap = overlap
        self.in_flight: deque[tuple[ScheduledBatch, StepOutput]] = deque()
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_model_len=max_model_len,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                policy=policy,
                max_queue=max_queue,
            ),
            CacheConfig(block_size=block_size, num_blocks=num_blocks, prefix_caching=prefix_caching),
            layer_groups,
            num_drafts=num_drafts,
            fit=fit,
        )
        self.device = SimulatedDevice(
            block_size=block_size,
            num_blocks=num_blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            num_drafts=num_drafts,
        )
        self.requests: dict[str, Request] = {}
        self.updates: dict[str, list[RequestUpdate]] = {}

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add(request)
            self.requests[request.request_id] = request
            self.updates[request.request_id] = []

    def abort(self, *request_ids: str) -> None:
        self._receive(self.scheduler.abort(request_ids))

    def step(self, *, abort_in_between: Sequence[str] = ()) -> ScheduledBatch | None:
        batch = self.scheduler.schedule()
        assert batch is not None or self.in_flight, "there is work and nothing runs"
        if batch is not None:
            self.in_flight.append((batch, self.device.execute(batch)))
            self._check_blocks()
        self.abort(*abort_in_between)
        if batch is None or not self.overlap or len(self.in_flight) == 2:
            self.commit()
        return batch

    def commit(self) -> None:
        self._receive(self.scheduler.commit(*self.in_flight.popleft()))

    def run(self, max_steps: int = 5_000) -> list[ScheduledBatch]:
        """Step until nothing is left; the bound makes a livelock a failure."""
        batches = []
        while self.scheduler.has_work:
            assert len(batches) < max_steps, "requests do not come to an end"
            batches.append(self.step())
        while self.in_flight:
            self.commit()
        return [batch for batch in batches if batch is not None]

    def run_widths(self) -> list[list[tuple[str, int]]]:
        """Step until nothing is left; return what each step fed of each request."""
        return [[(one.request_id, one.query_len) for one in batch.requests] for batch in self.run()]

    def output(self, request_id: str) -> tuple[int, ...]:
        return tuple(token_id for update in self.updates[request_id] for token_id in update.token_ids)

    def finish_reason(self, request_id: str) -> FinishReason | None:
        return self.updates[request_id][-1].finish_reason if self.updates[request_id] else None

    def check_at_rest(self) -> None:
        """Everything was given back, and every request got exactly what it would have got alone."""
        stats = self.scheduler.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used) == (0, 0, 0)
        for request_id, request in self.requests.items():
            expected = output_alone(request, self.max_model_len)
            got = self.output(request_id)
            if self.finish_reason(request_id) is FinishReason.ABORT:
                assert got == expected[: len(got)]
                continue
            assert got == expected
            assert self.finish_reason(request_id) in (FinishReason.STOP, FinishReason.LENGTH)
            self._check_prompt_logprobs(request)

    def _check_prompt_logprobs(self, request: Request) -> None:
        got = [logprobs.token_id for update in self.updates[request.request_id] for logprobs in update.prompt_logprobs]
        asked = request.params.prompt_logprobs is not None
        assert got == (list(request.prompt_token_ids[1:]) if asked else [])

    def _receive(self, updates: list[RequestUpdate]) -> None:
        for update in updates:
            history = self.updates[update.request_id]
            assert not history or history[-1].finish_reason is None, "an update after the end"
            history.append(update)

    def _check_blocks(self) -> None:
        """Each block has as many owners as rows hold it, and rows share only equal, computed, full blocks."""
        block_size = self.device.block_size
        pool = self.scheduler._cache.pool
        owners: Counter[int] = Counter()
        prefix_of: dict[int, tuple[int, ...]] = {}
        for row in self.device.rows.values():
            owners.update(row.block_ids)
        for row in self.device.rows.values():
            for index, block_id in enumerate(row.block_ids):
                if owners[block_id] > 1:
                    end = (index + 1) * block_size
                    prefix = tuple(row.token_ids[:end])
                    assert end <= row.num_computed_tokens, "shared before it was computed"
                    assert prefix_of.setdefault(block_id, prefix) == prefix, "shared between different prefixes"
        for block_id in range(1, self.device.num_blocks):
            assert pool.num_owners(block_id) == owners[block_id]
        assert pool.num_free == pool.num_total - len(owners) == len(pool.free_blocks())
        assert 0 not in pool.free_blocks()
