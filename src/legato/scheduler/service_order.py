"""Who comes first. Owns the policies, and the sorted list in which both running and waiting requests stand."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from operator import attrgetter

from legato.errors import ConfigError
from legato.flow.request import Request
from legato.scheduler.request_state import RequestState

OrderKey = Callable[[Request, int], tuple[float, ...]]

POLICIES: dict[str, OrderKey] = {
    "fcfs": lambda request, number: (request.arrival, number),
    "priority": lambda request, number: (request.priority, request.arrival, number),
}
"""Policy -> order of a request that was added as the ``number``-th; the number makes every order distinct."""


def order_key(policy: str) -> OrderKey:
    """Return the order of a policy. Raises ConfigError for an unknown one."""
    if policy not in POLICIES:
        raise ConfigError(
            "the scheduling policy is unknown",
            {"requested": f"--scheduling-policy {policy}", "options": " | ".join(POLICIES)},
        )
    return POLICIES[policy]


class OrderedRequests:
    """Requests sorted by their order of service.

    A list: with the few thousand requests that one engine holds, moving its tail costs less than anything cleverer.
    """

    def __init__(self) -> None:
        self._states: list[RequestState] = []

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._states)

    @property
    def first(self) -> RequestState:
        """The request to serve first."""
        return self._states[0]

    @property
    def last(self) -> RequestState:
        """The request to serve last."""
        return self._states[-1]

    def add(self, state: RequestState) -> None:
        """Insert a request at its place."""
        insort(self._states, state, key=_ORDER)

    def remove(self, state: RequestState) -> None:
        """Take a request out."""
        index = bisect_left(self._states, state.order, key=_ORDER)
        assert self._states[index] is state, "the request is not in this list"
        del self._states[index]


_ORDER = attrgetter("order")
