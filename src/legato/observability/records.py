"""One record per step: what was asked, what ran, and why. Owns the ring of recent records and the counts over all."""

from collections import Counter, deque
from itertools import islice

from msgspec import Struct

from legato.observability.reasons import Reason


class StepRecord(Struct, frozen=True, kw_only=True, gc=False):
    """What one stage of one step ran as."""

    step: int
    stage: str
    requested: str
    """Best mode that the policy gives this class of batch: ``full``, ``piecewise`` or ``eager``."""
    mode: str
    """Mode that ran."""
    reason: Reason | None
    """Why ``mode`` is not ``requested``, or why a part of the step ran outside its graph."""
    key: str | None
    """Graph key, written out; None where no graph ran."""
    num_reqs: int
    num_tokens: int
    num_tokens_padded: int
    host_us: float
    device_us: float | None
    """None where the device has no clock of its own."""


class StepLog:
    """The last ``capacity`` records, and counts over all records ever added."""

    def __init__(self, capacity: int = 1024) -> None:
        self.recent: deque[StepRecord] = deque(maxlen=capacity)
        self.steps: Counter[tuple[str, str]] = Counter()
        """(stage, mode) -> steps."""
        self.fallbacks: Counter[tuple[str, Reason]] = Counter()
        """(stage, reason) -> steps."""
        self.replays: Counter[str] = Counter()
        """Graph key, written out -> replays."""
        self.padding_tokens = 0
        self.waited_us = 0.0
        """Microseconds that the host waited for the device to end a step."""

    @property
    def num_records(self) -> int:
        """Records ever added."""
        return sum(self.steps.values())

    def last(self, count: int) -> tuple[StepRecord, ...]:
        """Return the last ``count`` records that are still held, oldest first."""
        return tuple(islice(self.recent, max(0, len(self.recent) - count), None))

    def add(self, record: StepRecord) -> None:
        """Append one record and count it."""
        self.recent.append(record)
        self.steps[record.stage, record.mode] += 1
        if record.reason is not None:
            self.fallbacks[record.stage, record.reason] += 1
        if record.key is not None:
            self.replays[record.key] += 1
        self.padding_tokens += record.num_tokens_padded - record.num_tokens
