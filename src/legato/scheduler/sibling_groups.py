"""Requests of one prompt (``n > 1``): one of them, the leader, computes it while the others wait to share its blocks.

Owns who waits for whom. A group exists here only while its prompt is not computed; siblings that come later find the
blocks by their prefix.
"""

from dataclasses import dataclass, field

from legato.scheduler.request_state import RequestState


@dataclass(slots=True, kw_only=True)
class _Group:
    leader: RequestState
    followers: list[RequestState] = field(default_factory=list)


class SiblingGroups:
    """The groups whose prompt is being computed, or waits to be."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def join(self, state: RequestState) -> bool:
        """Enter a request into its group; return whether it has to wait here for the leader."""
        name = state.request.group
        if name is None:
            return False
        group = self._groups.get(name)
        if group is None:
            self._groups[name] = _Group(leader=state)
            return False
        group.followers.append(state)
        return True

    def prompt_computed(self, state: RequestState) -> list[RequestState]:
        """Dissolve the group of a request that has computed its prompt; return the siblings that waited."""
        group = self._groups.pop(state.request.group, None) if state.request.group is not None else None
        return [] if group is None else group.followers

    def leave(self, state: RequestState) -> RequestState | None:
        """Take an ended request out of its group; return the sibling that leads in its place, if one does."""
        group = self._group_of(state)
        if group is None:
            return None
        if group.leader is not state:
            if state in group.followers:
                group.followers.remove(state)
            return None
        if not group.followers:
            del self._groups[state.request.group or ""]
            return None
        group.leader = group.followers.pop(0)
        return group.leader

    def is_waiting(self, state: RequestState) -> bool:
        """Return whether this request waits for its leader."""
        group = self._group_of(state)
        return group is not None and state in group.followers

    def _group_of(self, state: RequestState) -> _Group | None:
        return None if state.request.group is None else self._groups.get(state.request.group)
