"""What a viewer of a running engine is shown at one moment. Plain data: it crosses the process border at once."""

from dataclasses import dataclass

from legato.observability.records import StepLog, StepRecord
from legato.observability.stats import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """The counts of now, and the steps since the last look."""

    stats: EngineStats
    num_records: int
    """Step records ever added: the next look's ``seen``."""
    records: tuple[StepRecord, ...]
    """The newest records, oldest first."""


def live_view(stats: EngineStats, log: StepLog, *, seen: int, most: int) -> LiveView:
    """Return ``stats`` with the records of ``log`` that came after its first ``seen``, the newest ``most`` of them."""
    total = log.num_records
    return LiveView(stats=stats, num_records=total, records=log.last(max(0, min(total - seen, most))))
