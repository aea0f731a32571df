"""What speculative decoding was asked to do. Owns the values after checking; knows neither drafters nor tensors."""

from dataclasses import dataclass
from enum import StrEnum


class RejectionMethod(StrEnum):
    """How drafts are held to the target."""

    EXACT = "exact"
    """A draft stands where the target draws the same token: output is that of plain decoding."""
    SYNTHETIC = "synthetic"
    """Drafts stand at stated rates, whatever the target says: for benchmarks without a trained drafter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """One drafter and its settings."""

    method: str
    """Name in the registry of drafters."""
    num_speculative_tokens: int
    """k: tokens drafted in a round, or the most where each step has its own."""
    chosen_per_step: bool = False
    """Whether k is chosen for each step, from none to ``num_speculative_tokens``."""
    model: str | None = None
    """Folder, hub id or file of the drafter's weights; None for drafters that have none."""
    load_format: str = "auto"
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 4
    """Shortest and longest run of latest tokens that ``ngram`` looks for earlier in the sequence."""
    rejection_method: RejectionMethod = RejectionMethod.EXACT
    acceptance_rates: tuple[float, ...] = ()
    """[k] SYNTHETIC: chance that draft i stands, given that those before it do."""

    @property
    def width(self) -> int:
        """Tokens of a request in a verification step: the drafts and the token before them."""
        return 1 + self.num_speculative_tokens

    @property
    def numbers_of_drafts(self) -> tuple[int, ...]:
        """What k may be in a step, ascending."""
        most = self.num_speculative_tokens
        return draft_numbers(most) if self.chosen_per_step else (most,)

    @property
    def synthetic_length(self) -> float:
        """SYNTHETIC: tokens of a round with all drafts in the mean, its own token counted."""
        tokens = run = 1.0
        for rate in self.acceptance_rates:
            run *= rate
            tokens += run
        return tokens

    @property
    def slack(self) -> int:
        """Tokens past the longest sequence that steps may compute, where a request ends within a run.

        A run that begins at its last token, the one launched behind it before that was known, and the drafts.
        """
        return 3 * self.width


def draft_numbers(most: int) -> tuple[int, ...]:
    """Return the numbers of drafts to choose from, 0 and ``most`` among them; each has graphs of its own.

    Up to 5 all, above that every second and later every third: acceptance falls with the place in the run, so that
    neighbours up there are nearly equal, and each would cost as many graphs as the first.
    """
    numbers = (*range(6), 7, 9, 12, 15)
    return (*[number for number in numbers if number < most], most)


def rates_of_length(length: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return equal conditional rates at which a round yields ``length`` tokens in the mean, its extra token counted.

    With rate r a round yields 1 + r + r² + … + r^k tokens, which grows with r: found by bisection. ``length`` is from
    1 to k + 1.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(middle**power for power in range(num_speculative_tokens + 1))
        low, high = (middle, high) if mean < length else (low, middle)
    return (high,) * num_speculative_tokens


def rates_of_positions(positions: tuple[float, ...]) -> tuple[float, ...]:
    """Return conditional rates for the share of rounds in which draft i stands, [k], none above the one before."""
    before = (1.0, *positions[:-1])
    return tuple(rate / last if last > 0 else 0.0 for rate, last in zip(positions, before, strict=True))
