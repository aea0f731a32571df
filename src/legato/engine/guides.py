"""How far each guided request has come in its grammar. Owns the matchers, by request, and requests that wait for one.

A matcher follows the tokens that were committed, so that preemption does not touch it. Knows no device.
"""

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

import numpy as np

from legato.engine.grammars import CompiledGrammar, Grammars, Matcher
from legato.flow.request import Request
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.scheduled_batch import ScheduledBatch
from legato.runner.model_runner import HostMasks

WAIT_S = 0.02
"""How long an engine without other work waits for a grammar before it looks for messages again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What has become of requests whose grammars were compiled meanwhile."""

    ready: tuple[Request, ...] = ()
    failed: tuple[RequestUpdate, ...] = ()


@dataclass(slots=True)
class Guides:
    """Matchers of the requests that run, and requests whose grammar is not compiled yet."""

    grammars: Grammars
    _matchers: dict[str, Matcher] = field(default_factory=dict)
    _compiling: dict[str, tuple[Request, "Future[CompiledGrammar]"]] = field(default_factory=dict)

    @property
    def num_compiling(self) -> int:
        """Requests that wait for their grammar."""
        return len(self._compiling)

    @property
    def num_running(self) -> int:
        """Requests with a matcher."""
        return len(self._matchers)

    def is_compiling(self, request_id: str) -> bool:
        """Return whether the request waits for its grammar."""
        return request_id in self._compiling

    def open(self, request: Request) -> bool:
        """Begin to guide a request; return whether its grammar is there. If not, it is kept until that is so.

        Raises RequestError for a guide that is known to have no grammar.
        """
        guide = request.params.guided
        assert guide is not None, "there is nothing to guide by"
        future = self.grammars.submit(guide)
        if future.done():
            self._matchers[request.request_id] = self.grammars.matcher(future.result())
            return True
        self._compiling[request.request_id] = request, future
        return False

    def take_compiled(self, *, may_wait: bool) -> Compiled:
        """Return the requests whose grammars are there now, and the ends of those that have none.

        ``may_wait``: there is nothing else to do, so that a moment is given to the next grammar.
        """
        if may_wait:
            wait([future for _, future in self._compiling.values()], WAIT_S, FIRST_COMPLETED)
        ready, failed = [], []
        for request, future in [entry for entry in self._compiling.values() if entry[1].done()]:
            del self._compiling[request.request_id]
            error = future.exception()
            if error is None:
                self._matchers[request.request_id] = self.grammars.matcher(future.result())
                ready.append(request)
            else:
                failed.append(ended_with(request.request_id, str(error)))
        return Compiled(ready=tuple(ready), failed=tuple(failed))

    def close(self, request_id: str) -> bool:
        """Forget a request; return whether it was waiting for its grammar."""
        self._matchers.pop(request_id, None)
        return self._compiling.pop(request_id, None) is not None

    def follow(self, update: RequestUpdate) -> bool:
        """Advance a request's matcher by its new tokens; return False where one of them is none of its grammar's."""
        matcher = self._matchers.get(update.request_id)
        if matcher is None:
            return True
        follows = all(matcher.accept_token(token_id) for token_id in update.token_ids)
        if update.finish_reason is not None or not follows:
            del self._matchers[update.request_id]
        return follows

    def masks(self, batch: ScheduledBatch) -> HostMasks | None:
        """Return which tokens the batch's guided requests may have now; None: none of them draws a token."""
        places = [
            index
            for index, request in enumerate(batch.requests)
            if request.samples and request.request_id in self._matchers
        ]
        if not places:
            return None  # all guided ones have ended since the batch was formed
        bits_np = np.full((len(places), self.grammars.num_words), -1, np.int32)
        for index, place in enumerate(places):
            self._matchers[batch.requests[place].request_id].fill_next_token_bitmask(bits_np, index)
        return HostMasks(requests_np=np.array(places), bits_np=bits_np)


def ended_with(request_id: str, message: str) -> RequestUpdate:
    """Return the end of a request that cannot go on."""
    return RequestUpdate(request_id=request_id, finish_reason=FinishReason.ERROR, error=message)
