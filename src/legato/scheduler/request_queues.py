"""Where each request stands: behind its leader, waiting, or running in a row. Owns every move between those places.

A request that stops running gives its row and its blocks back at once.
"""

from legato.kvcache.manager import KVCacheManager
from legato.scheduler.request_state import RequestState
from legato.scheduler.rows import RowPool
from legato.scheduler.service_order import OrderedRequests
from legato.scheduler.sibling_groups import SiblingGroups


class RequestQueues:
    """The requests that are held, each in one place."""

    def __init__(self, max_num_seqs: int, cache: KVCacheManager) -> None:
        self.waiting = OrderedRequests()
        self.running = OrderedRequests()
        self.rows = RowPool(max_num_seqs)
        self.num_preemptions = 0
        self._groups = SiblingGroups()
        self._cache = cache

    def enter(self, state: RequestState) -> None:
        """Let a new request wait for its turn, or for the prompt that its leader computes."""
        if not (self._gains_by_its_leader(state) and self._groups.join(state)):
            self.waiting.add(state)

    def admit(self, state: RequestState, num_computed_tokens: int) -> None:
        """Let a waiting request run, in the smallest free row, with so many tokens computed already."""
        state.admit(self.rows.take(), num_computed_tokens)
        self.waiting.remove(state)
        self.running.add(state)

    def preempt(self, state: RequestState) -> None:
        """Let a running request wait again, all it computed lost."""
        self._stop_running(state)
        state.preempt()
        self.waiting.add(state)
        self.num_preemptions += 1

    def prompt_computed(self, state: RequestState) -> None:
        """Let those that waited for this request's prompt wait for their turn: its blocks are there to share."""
        for sibling in self._groups.prompt_computed(state):
            self.waiting.add(sibling)

    def leave(self, state: RequestState) -> None:
        """Let go of a request, wherever it stands; where it led others, the next one leads them."""
        if state.row >= 0:
            self._stop_running(state)
        elif not self._groups.is_waiting(state):
            self.waiting.remove(state)
        successor = self._groups.leave(state)
        if successor is not None:
            self.waiting.add(successor)

    def _stop_running(self, state: RequestState) -> None:
        self.running.remove(state)
        self._cache.release(state.table)
        self.rows.release(state.row)

    def _gains_by_its_leader(self, state: RequestState) -> bool:
        """Return whether a leader of its group could compute blocks for it: one full block, with a token to spare."""
        return self._cache.can_share and state.may_reuse_prefix and state.num_prompt_tokens > self._cache.block_size
