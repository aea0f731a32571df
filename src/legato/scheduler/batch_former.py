"""Who is in the next step. Owns the order of service and what becomes of those that find no room.

Each step serves running requests first, decodes before prefills, then admits waiting ones, all under one budget of
tokens; it has fewer where it then fits a graph better, or where first tokens come earlier so. Service is strictly in
order: a waiting request that finds too few blocks is not overtaken, so none starves.
When a decode finds no block, the running request that is last in order loses its blocks and row, and is computed again
later. The first in order is never the victim, so some request always ends and the others' turn comes.
"""

from collections.abc import Sequence
from itertools import chain, islice

from legato.kvcache.manager import KVCacheManager
from legato.scheduler.batch_draft import BatchDraft
from legato.scheduler.divided_prompts import tokens_of_the_first_step
from legato.scheduler.graph_fit import GraphFit
from legato.scheduler.request_queues import RequestQueues
from legato.scheduler.request_state import RequestState


class BatchFormer:
    """Takes requests of ``queues`` into steps of so many tokens at most, with the blocks that they need."""

    def __init__(
        self, queues: RequestQueues, cache: KVCacheManager, max_num_batched_tokens: int, fit: GraphFit
    ) -> None:
        self._queues = queues
        self._cache = cache
        self._max_num_batched_tokens = max_num_batched_tokens
        self._fit = fit

    def form(self, running: Sequence[RequestState], num_drafts: int | None) -> BatchDraft:
        """Return the step of those ``running`` that go on, and of waiting ones; it may be empty.

        ``num_drafts``: drafts of each decode; None: there is no drafter.
        """
        draft = BatchDraft(self._max_num_batched_tokens, num_drafts)
        # A request that ends with the step in flight gives its blocks back at the commit: no need to take another's.
        may_preempt = len(running) == len(self._queues.running)
        all_found_room = self._continue_decodes(running, draft, may_preempt=may_preempt)
        self._divide_prompts(running, draft)
        self._continue_prefills(running, draft)
        if all_found_room:
            # Otherwise the blocks just freed belong to those still running, not to who lost them.
            self._admit_waiting(draft)
        excess = self._fit.excess(draft.num_tokens)
        if excess:
            draft.leave_to_the_next(excess)
        return draft

    def _continue_decodes(self, running: Sequence[RequestState], draft: BatchDraft, *, may_preempt: bool) -> bool:
        """Feed the decodes; return whether blocks were free for all of them. Without them one preempts, or waits.

        A victim comes later in order, so none is in the draft already; what it has left to do is a prefill.
        """
        all_found_room = True
        num_drafts = draft.num_drafts or 0
        for state in running:
            if not state.is_decoding:
                continue
            if draft.num_tokens_left <= num_drafts:
                break
            # The drafts that are fed, and as many that the drafter makes behind them, for its own keys and values.
            num_needed = state.num_computed_tokens + 1 + 2 * num_drafts
            if num_needed > state.table.num_slots:
                num_blocks = len(state.table.block_ids)
                # The output's last token is only sampled. What is drafted past it is for nobody, but drafts that are
                # fed stand beside tokens that count, which must not meet with the null block: it may hold anything.
                num_needed = min(num_needed, state.max_num_tokens - 1 + num_drafts)
                if not self._cache.grow(state.table, num_needed):
                    all_found_room = False
                    if not (may_preempt and self._preempt_for(state, num_needed)):
                        continue
                if len(state.table.block_ids) > num_blocks:
                    draft.append_blocks(state, num_blocks)
            draft.feed(state)
        return all_found_room

    def _divide_prompts(self, running: Sequence[RequestState], draft: BatchDraft) -> None:
        """End the step with a prompt where two steps are needed for all of them, and first tokens come earlier so.

        Not where most requests decode: those end meanwhile, and the prompts that follow them fill this step. A waiting
        prompt counts whole; what the cache has of it is found when it is admitted.
        """
        queues, room, num_decodes = self._queues, draft.num_tokens_left, len(draft.states)
        num_admitted = min(len(queues.waiting), queues.rows.num_free)
        if room < self._fit.least_tokens or len(running) - num_decodes + num_admitted < max(num_decodes, 2):
            return
        prompts = chain(filter(_is_prefilling, running), islice(queues.waiting, num_admitted))
        num_left = [state.num_tokens - state.num_computed_tokens for state in prompts]
        num_tokens = tokens_of_the_first_step(num_left, room, 1 + (draft.num_drafts or 0))
        if num_tokens is not None:
            draft.limit(min(self._fit.size_of(draft.num_tokens + num_tokens), self._max_num_batched_tokens))

    def _continue_prefills(self, running: Sequence[RequestState], draft: BatchDraft) -> None:
        if len(draft.states) == len(running):
            return  # all of them decode, and are in the draft
        for state in running:
            if draft.num_tokens_left == 0:
                return
            if _is_prefilling(state):
                draft.feed(state)

    def _admit_waiting(self, draft: BatchDraft) -> None:
        queues, num_drafts = self._queues, draft.num_drafts or 0
        while draft.num_tokens_left > 0 and queues.waiting and queues.rows.num_free > 0:
            state = queues.waiting.first
            reuse_prefix = state.may_reuse_prefix
            num_computed_tokens = self._cache.open(
                state.table, state.token_ids, reuse_prefix=reuse_prefix, num_ahead=num_drafts
            )
            if num_computed_tokens is None:
                return
            if reuse_prefix and not state.was_admitted:
                self._cache.count_lookup(
                    num_prompt_tokens=state.num_prompt_tokens, num_cached_tokens=num_computed_tokens
                )
            if num_drafts:
                # Room for what the drafter writes behind the prompt: where it is lacking, the first drafts are worse.
                self._cache.grow(state.table, min(state.num_tokens + num_drafts, state.max_num_tokens - 1))
            queues.admit(state, num_computed_tokens)
            draft.admit(state)
            draft.feed(state)

    def _preempt_for(self, state: RequestState, num_needed: int) -> bool:
        """Take blocks for so many of the request's tokens; return False where it was itself the last in order."""
        while not self._cache.grow(state.table, num_needed):
            victim = self._queues.running.last
            self._queues.preempt(victim)
            if victim is state:
                return False
        return True


def _is_prefilling(state: RequestState) -> bool:
    """Return whether a request that ran has tokens to compute; one that was preempted just now waits."""
    return state.row >= 0 and not state.is_decoding
