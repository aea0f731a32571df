"""How likely drafts are to stand, as far as is known now. Owns the running estimate per place in the run; pure.

Each place has the chance that its draft stands where those before it do. Evidence is weighed exponentially: what is
judged anew replaces what is old, and a place that is not drafted at the time forgets. What is unknown, or was
forgotten, is taken to be as likely as the place before it. So a number of drafts that was given up looks better as
time goes by, until it is tried again, and a few rounds tell whether it pays now.
"""

from collections.abc import Sequence

_WINDOW = 512.0
"""Judged drafts of a place that the estimate goes back to."""
_FORGETTING = 1.0 / 2000
"""Share of a place's evidence that is lost in a round in which it is not judged."""
_GUESS = 0.7
"""Chance of a first draft before any was judged."""
_GUESS_WEIGHT = 4.0
"""Judged drafts that this guess counts for."""
_LIKENESS_WEIGHT = 32.0
"""Judged drafts that the rate of the place before counts for: a few unlucky ones do not end what was hardly tried."""


class AcceptanceEstimate:
    """The estimate for ``max_drafts`` places."""

    def __init__(self, max_drafts: int) -> None:
        self._judged = [0.0] * max_drafts
        self._stood = [0.0] * max_drafts

    def observe(self, stood: Sequence[int]) -> None:
        """Take in one step: ``stood[i]`` requests of which the first i drafts stood; [0] is all that were judged.

        A place that was not drafted has no entry.
        """
        for place in range(len(self._judged)):
            num_judged = stood[place] if place + 1 < len(stood) else 0
            if num_judged:
                kept = (1.0 - 1.0 / _WINDOW) ** num_judged
                new = (1.0 - kept) * _WINDOW
                self._judged[place] = self._judged[place] * kept + new
                self._stood[place] = self._stood[place] * kept + new * stood[place + 1] / num_judged
            else:
                self._judged[place] *= 1.0 - _FORGETTING
                self._stood[place] *= 1.0 - _FORGETTING

    def rates(self) -> tuple[float, ...]:
        """Return the chance that draft i stands, given that those before it do.  # [max_drafts]"""
        rates, guess, weight = [], _GUESS, _GUESS_WEIGHT
        for judged, stood in zip(self._judged, self._stood, strict=True):
            guess = (stood + weight * guess) / (judged + weight)
            rates.append(guess)
            weight = _LIKENESS_WEIGHT
        return tuple(rates)


def expected_tokens(rates: Sequence[float], num_drafts: int, *, share: float = 1.0) -> float:
    """Return the tokens that a request gets of a round in the mean.

    ``rates``: chances that draft i stands given those before; ``share``: of the requests whose drafts may stand.
    """
    tokens, run = 1.0, share
    for rate in rates[:num_drafts]:
        run *= rate
        tokens += run
    return tokens
