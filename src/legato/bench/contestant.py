"""What takes part in a measurement. Owns the border between the measuring and the engines measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Prompts = Sequence[tuple[int, ...]]
"""[batch_size][input_len] token ids, all of one length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One batch, generated greedily to its full length. Seconds from the call."""

    first_token_s: float
    """When every request had its first token."""
    total_s: float
    token_ids: tuple[tuple[int, ...], ...]
    """[batch_size][output_len]"""

    @property
    def ms_per_token(self) -> float:
        """Milliseconds per step after the first token: what a reader waits for between two tokens."""
        return (self.total_s - self.first_token_s) * 1000 / max(1, len(self.token_ids[0]) - 1)


class Contestant(Protocol):
    """One engine, built and ready."""

    name: str

    def generate(self, prompts: Prompts, output_len: int) -> Timing:
        """Generate ``output_len`` tokens for each prompt, whatever the model's end tokens."""
        ...

    def graph_steps(self) -> Mapping[str, int]:
        """Return ``stage mode -> steps`` so far; empty for an engine that keeps no record."""
        ...
