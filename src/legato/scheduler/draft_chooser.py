"""How many drafts the decodes of the next step are fed. Owns the choice and what it has brought so far; pure.

The number with the most expected tokens per millisecond is taken: tokens by the running estimate of acceptance,
milliseconds by the costs that were measured at start. 0 is among the numbers: plain decoding. A number that is hardly
better than the present one is passed over, as every change to more drafts has a round whose last drafts nobody made.
"""

from collections.abc import Sequence

from legato.flow.scheduled_batch import ScheduledBatch
from legato.flow.step_output import StepOutput
from legato.scheduler.acceptance_estimate import AcceptanceEstimate, expected_tokens
from legato.scheduler.round_costs import RoundCosts

_LEAST_GAIN = 1.005
"""Times as many tokens per millisecond for which the number is changed."""


class DraftChooser:
    """Chooses among the numbers of drafts in ``costs``."""

    def __init__(self, costs: RoundCosts) -> None:
        self.costs = costs
        self.num_drafts = 0
        """Drafts of the step that was formed last."""
        self.pinned: int | None = None
        """A number that is taken whatever it costs, for measurements; None: the best."""
        self._numbers = costs.num_drafts
        self._estimate = AcceptanceEstimate(costs.num_drafts[-1])
        self._costs_at: dict[int, tuple[float, ...]] = {}
        self._plain_ms = 0.0
        self._spent_ms = 0.0
        self.choose(1, 1)  # so that the first prompts get drafts

    @property
    def rates(self) -> tuple[float, ...]:
        """Chance that draft i stands, given that those before it do, as estimated now.  # [most drafts]"""
        return self._estimate.rates()

    @property
    def speed_up(self) -> float | None:
        """Times as fast as plain decoding, since start: tokens that came over what they and their rounds cost."""
        return self._plain_ms / self._spent_ms if self._spent_ms else None

    def forget(self) -> None:
        """Begin as at start: what was seen is no guide to what comes."""
        self._estimate = AcceptanceEstimate(self._numbers[-1])
        self._plain_ms = self._spent_ms = 0.0

    def choose(self, num_reqs: int, num_judged: int) -> int:
        """Return the drafts of each decode in the next step.

        ``num_reqs``: decodes; ``num_judged``: those among them whose drafts may stand.
        """
        if self.pinned is not None:
            self.num_drafts = self.pinned
        elif num_reqs:
            self.num_drafts = self._best(num_reqs, num_judged / num_reqs)
        return self.num_drafts

    def take_in(self, batch: ScheduledBatch, output: StepOutput, *, num_made: int) -> None:
        """Take in what a step brought, for which ``num_made`` drafts were made; what it cost only without prompts."""
        num_drafts = batch.num_drafts or 0
        decodes = [
            (request.num_drafts, len(result.token_ids))
            for request, result in zip(batch.requests, output.requests, strict=True)
            if request.is_decode
        ]
        judged = [num_tokens for may_stand, num_tokens in decodes if may_stand == num_drafts]
        self.observe([sum(num > place for num in judged) for place in range(1 + num_drafts)], num_made=num_made)
        if len(decodes) == len(batch.requests):
            self.account(len(decodes), num_drafts, sum(num_tokens for _, num_tokens in decodes))

    def observe(self, stood: Sequence[int], *, num_made: int) -> None:
        """Take in which drafts of a step stood.

        ``stood[i]``: requests of which the first i drafts stood; [0] is all that were judged. ``num_made``: drafts that
        were made for this step; those behind them are of earlier rounds and tell nothing.
        """
        self._estimate.observe(stood[: 1 + num_made])

    def account(self, num_reqs: int, num_drafts: int, num_tokens: int) -> None:
        """Take in that ``num_reqs`` decodes with ``num_drafts`` drafts each, and no prompts, brought ``num_tokens``."""
        costs = self._costs(num_reqs)
        self._plain_ms += costs[0] * num_tokens / num_reqs
        self._spent_ms += costs[self._numbers.index(num_drafts)]

    def _best(self, num_reqs: int, share: float) -> int:
        rates = self._estimate.rates()
        speeds = {
            number: expected_tokens(rates, number, share=share) / ms
            for number, ms in zip(self._numbers, self._costs(num_reqs), strict=True)
        }
        best = max(speeds, key=speeds.__getitem__)
        return best if speeds[best] > _LEAST_GAIN * speeds[self.num_drafts] else self.num_drafts

    def _costs(self, num_reqs: int) -> tuple[float, ...]:
        found = self._costs_at.get(num_reqs)
        if found is None:
            found = self._costs_at[num_reqs] = self.costs.at(num_reqs)
        return found
