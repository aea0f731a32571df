"""How many drafts stood. Owns the totals since start."""

from dataclasses import dataclass, field
from typing import TypedDict


class AcceptanceStats(TypedDict):
    """The totals, under the names that the engine's stats give them."""

    spec_decode_drafts: int
    spec_decode_draft_tokens: int
    spec_decode_accepted_tokens: int
    spec_decode_accepted_per_position: tuple[int, ...]


@dataclass(slots=True)
class AcceptanceCounts:
    """Counts over all rounds of all requests."""

    max_drafts: int
    num_rounds: int = 0
    num_drafts: int = 0
    ended_at: list[int] = field(init=False)
    """[max_drafts + 1] rounds by how many drafts stood."""

    def __post_init__(self) -> None:
        self.ended_at = [0] * (self.max_drafts + 1)

    def add(self, num_drafts: int, num_accepted: int) -> None:
        """Count one request's round."""
        self.num_rounds += 1
        self.num_drafts += num_drafts
        self.ended_at[num_accepted] += 1

    def stats(self) -> AcceptanceStats:
        """Return the totals."""
        per_position = tuple(sum(self.ended_at[place:]) for place in range(1, self.max_drafts + 1))
        return AcceptanceStats(
            spec_decode_drafts=self.num_rounds,
            spec_decode_draft_tokens=self.num_drafts,
            spec_decode_accepted_tokens=sum(per_position),
            spec_decode_accepted_per_position=per_position,
        )
