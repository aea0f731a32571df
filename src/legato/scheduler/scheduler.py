"""Requests -> ScheduledBatch -> RequestUpdates. Owns every request, row and block; knows no tensor and no text.

A step may be formed while the one before is *in flight*: launched, and not committed. The device runs steps in the
order in which they are formed, so that a step counts on the keys, values and tokens of the one before; only what the
host must know waits for the commit. A request whose token is pending decodes it unseen, unless its output ends with
that token anyway. Where the token turns out to end the output, the step in flight computes one token too many, whose
result is passed over. Rows and blocks that it uses are free at once even so: whoever gets them next writes them in a
later step.

With a drafter a decode brings one token for certain and one more for each draft that stands. The step behind it is
formed with bounds: of tokens that come for certain where an end is foreseen, of all that may come where room is needed.
The commit brings the count. Room for drafts that fell stays with the request, whose next tokens take it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from legato.config.engine import CacheConfig, SchedulerConfig
from legato.errors import QueueFullError
from legato.flow.request import Request, id_in_use
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import StepOutput
from legato.graphs.modes import SamplerVariant
from legato.kvcache.manager import KVCacheManager
from legato.kvcache.spec import LayerGroup
from legato.observability.stats import EngineStats
from legato.scheduler.acceptance_counts import AcceptanceCounts
from legato.scheduler.batch_former import BatchFormer
from legato.scheduler.commit import apply_result
from legato.scheduler.draft_chooser import DraftChooser
from legato.scheduler.graph_fit import ANY_SIZE, GraphFit
from legato.scheduler.limits import check_request
from legato.scheduler.request_queues import RequestQueues
from legato.scheduler.request_state import RequestState
from legato.scheduler.service_order import order_key

MAX_STEPS_IN_FLIGHT = 2
"""One that runs, and one launched behind it."""


@dataclass(frozen=True, slots=True)
class _Formed:
    """A batch that is not committed yet, with the states of its requests."""

    batch: ScheduledBatch
    states: list[RequestState]
    num_made: int
    """Drafts that were made for it."""


class Scheduler:
    """Continuous batching with chunked prefill. Batches are committed in the order in which they were formed."""

    def __init__(
        self,
        config: SchedulerConfig,
        cache: CacheConfig,
        layer_groups: Sequence[LayerGroup],
        num_drafts: int | None = None,
        fit: GraphFit = ANY_SIZE,
    ) -> None:
        """``num_drafts``: most drafts that a drafter makes for each decode; None: there is no drafter.

        ``fit``: the graphs that steps should fit.
        """
        self._config = config
        self.num_drafts = num_drafts
        """Drafts that decodes of the next step are fed, and that it makes."""
        self.chooser: DraftChooser | None = None
        """What changes ``num_drafts`` for each step; None: it stays."""
        self._num_made = 0
        """Drafts that the step formed last makes."""
        self._cache = KVCacheManager(cache, layer_groups)
        self._order_key = order_key(config.policy)
        self._requests: dict[str, RequestState] = {}
        self._queues = RequestQueues(config.max_num_seqs, self._cache)
        self._former = BatchFormer(self._queues, self._cache, config.max_num_batched_tokens, fit)
        self._in_flight: deque[_Formed] = deque()
        self._step = 0
        self._num_added = 0
        self._num_guided = 0
        """Requests that are held and have a guide."""
        self._num_prompt_tokens = 0
        self._num_generation_tokens = 0
        self._acceptance = AcceptanceCounts(num_drafts or 0)

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._requests)

    def stats(self) -> EngineStats:
        """Return the counts that the scheduler knows; those of graphs are left at zero."""
        pool, index, num_running = self._cache.pool, self._cache.index, len(self._queues.running)
        return EngineStats(
            num_running=num_running,
            num_waiting=len(self._requests) - num_running,
            kv_blocks_used=pool.num_total - pool.num_free,
            kv_blocks_total=pool.num_total,
            prefix_cache_queries=index.query_tokens,
            prefix_cache_hits=index.hit_tokens,
            preemptions=self._queues.num_preemptions,
            prompt_tokens=self._num_prompt_tokens,
            generation_tokens=self._num_generation_tokens,
            **self._acceptance.stats(),
            spec_decode_num_speculative_tokens=self.num_drafts,
            spec_decode_speed_up=None if self.chooser is None else self.chooser.speed_up,
        )

    def add(self, request: Request) -> None:
        """Take a request into the queue; raises what :meth:`check` does."""
        self.check(request)
        state = RequestState(
            request=request,
            order=self._order_key(request, self._num_added),
            table=self._cache.new_table(request.group),
            max_num_tokens=min(len(request.prompt_token_ids) + request.max_tokens, self._config.max_model_len),
        )
        self._num_added += 1
        self._num_guided += request.params.guided is not None
        self._requests[request.request_id] = state
        self._queues.enter(state)

    def check(self, request: Request, *, num_elsewhere: int = 0) -> None:
        """Raise RequestError for a request that could never finish or whose id is in use, QueueFullError when full.

        ``num_elsewhere``: requests that are to come, and count as held.
        """
        check_request(request, self._config, self._cache, num_drafts=self._acceptance.max_drafts)
        if request.request_id in self._requests:
            raise id_in_use(request.request_id)
        num_held = len(self._requests) + num_elsewhere
        if num_held >= self._config.max_queue:
            raise QueueFullError(
                "too many requests", {"found": num_held, "limit": f"{self._config.max_queue} held at once"}
            )

    def abort(self, request_ids: Iterable[str]) -> list[RequestUpdate]:
        """End requests now, their blocks and rows free at once; ids that are not held are ignored."""
        updates = []
        for request_id in request_ids:
            state = self._requests.get(request_id)
            if state is not None:
                self._end(state)
                updates.append(
                    RequestUpdate(
                        request_id=request_id,
                        num_cached_tokens=state.num_cached_tokens,
                        finish_reason=FinishReason.ABORT,
                    )
                )
        return updates

    def reset_prefix_cache(self) -> None:
        """Forget all computed prefixes; running requests are not touched."""
        self._cache.index.reset()

    def schedule(self) -> ScheduledBatch | None:
        """Form the next step; return None where nothing can run before the step in flight is committed, or at all."""
        assert len(self._in_flight) < MAX_STEPS_IN_FLIGHT, "scheduled before an earlier batch was committed"
        running = [state for state in self._queues.running if not state.is_ending]
        if self.chooser is not None:
            decodes = [state for state in running if state.is_decoding]
            num_judged = sum(
                state.sampler is not SamplerVariant.GENERAL and state.request.params.guided is None for state in decodes
            )
            self.num_drafts = self.chooser.choose(len(decodes), num_judged)
        draft = self._former.form(running, self.num_drafts)
        if not draft.states:
            return None
        self._step += 1
        batch = draft.seal(self._step, self._queues.rows.drain_released(), may_be_guided=self._num_guided > 0)
        self._in_flight.append(_Formed(batch, draft.states, self._num_made))
        self._num_made = self.num_drafts or 0
        return batch

    def commit(self, batch: ScheduledBatch, output: StepOutput) -> list[RequestUpdate]:
        """Take in what the earliest batch in flight computed; return what is new for each of its requests.

        Requests that ended in the meantime are passed over.
        """
        formed = self._in_flight.popleft()
        assert batch is formed.batch and output.step == batch.step, "committed out of order"
        if self.chooser is not None:
            self.chooser.take_in(batch, output, num_made=formed.num_made)
        updates = []
        for state, scheduled, result in zip(formed.states, batch.requests, output.requests, strict=True):
            assert scheduled.request_id == result.request_id, "results are not in the order of the batch"
            if state.ended:
                continue
            update = apply_result(state, scheduled, result)
            start, end = scheduled.num_computed_tokens, scheduled.seq_len
            if scheduled.num_drafts:
                self._acceptance.add(scheduled.num_drafts, len(result.token_ids) - 1)
            if scheduled.is_decode:
                # All but the latest have passed the model; drafts that fell do not count.
                end = len(state.token_ids) - 1
            if state.row >= 0:  # else it has lost its blocks since
                self._cache.register(state.table, state.token_ids, end)
            if start < state.num_prompt_tokens <= end:
                if scheduled.num_output_tokens == 0:  # else it is computed again
                    self._num_prompt_tokens += state.num_prompt_tokens
                self._queues.prompt_computed(state)
            if update is not None:
                self._num_generation_tokens += len(update.token_ids)
                updates.append(update)
                if update.finish_reason is not None:
                    self._end(state)
        return updates

    def _end(self, state: RequestState) -> None:
        del self._requests[state.request.request_id]
        state.ended = True
        self._num_guided -= state.request.params.guided is not None
        self._queues.leave(state)
