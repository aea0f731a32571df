"""Which drafts stand: the length of the accepted run, as device operations.

Owns the comparison of drafts with what the target draws. A drafter proposes one token per position, not a
distribution; for such a point mass rejection sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv
2302.01318) comes down to this: draw from the target at every position, and accept while the draw equals the draft.
Draft x is then accepted with the target's probability of x, and a draw that differs has the target's distribution
without x, which is the residual that the papers sample from. As draws depend on (seed, position, token) alone, the
output is token for token that of plain decoding, greedy or not.
"""

from collections.abc import Sequence

import torch

from legato.sampling.noise import log_exponential


def accepted_run(matches: torch.Tensor) -> torch.Tensor:
    """Return how many leading drafts of each row stand.

    ``matches`` [num_reqs, k] bool; returns [num_reqs] int64.
    """
    return matches.to(torch.int64).cumprod(dim=1).sum(dim=1)


def matching_drafts(sampled: torch.Tensor, drafts: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    """Return which drafts equal the target's draw.  # [num_reqs, k] bool

    ``sampled`` [num_reqs, 1 + k] int64: the draw after each of the step's tokens; ``drafts`` [num_reqs, k] int64;
    ``num_drafts`` [num_reqs] int64: those beyond it do not count.
    """
    return (sampled[:, :-1] == drafts) & _within(drafts, num_drafts)


class SyntheticAcceptance:
    """Accepts drafts at stated rates, by a coin that depends on (seed, position) alone."""

    def __init__(self, rates: Sequence[float], device: torch.device) -> None:
        """``rates`` [k]: the chance that draft i stands, given that those before it do."""
        self._log_bounds = torch.zeros(len(rates), dtype=torch.float32, device=device)  # [k]
        self._never = torch.zeros(len(rates), dtype=torch.bool, device=device)  # [k]
        self.set_rates(rates)
        self._coin = torch.zeros(1, dtype=torch.int32, device=device)  # a hash that no token has

    @torch.inference_mode()
    def set_rates(self, rates: Sequence[float]) -> None:
        """Accept at other rates [k] from now on; graphs read them where they are."""
        # An Exp(1) variate is above -log(rate) with probability rate.
        chances = torch.tensor(rates, dtype=torch.float64).clamp(1e-30, 1.0)
        self._log_bounds.copy_((-chances.log()).clamp(min=1e-30).log())
        self._never.copy_(torch.tensor([rate <= 0.0 for rate in rates]))

    def accepted(self, seeds: torch.Tensor, positions: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
        """Return which drafts stand.  # [num_reqs, k] bool

        ``seeds`` [num_reqs] int64, mixed; ``positions`` [num_reqs, k] int64 of the drafts, k at most as many as rates;
        ``num_drafts`` [num_reqs].
        """
        num_reqs, width = positions.shape
        keys = seeds.unsqueeze(1).expand(num_reqs, width).reshape(-1)
        tosses = log_exponential(keys, positions.reshape(-1), self._coin).view(num_reqs, width)
        return (tosses > self._log_bounds[:width]) & ~self._never[:width] & _within(positions, num_drafts)


def take_drafts(sampled: torch.Tensor, drafts: torch.Tensor, num_accepted: torch.Tensor) -> torch.Tensor:
    """Return ``sampled`` [num_reqs, 1 + k] with the accepted drafts in place of the target's draws."""
    columns = torch.arange(drafts.shape[1], device=drafts.device)
    chosen = torch.where(columns < num_accepted.unsqueeze(1), drafts, sampled[:, :-1])
    return torch.cat([chosen, sampled[:, -1:]], dim=1)


def _within(like: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    return torch.arange(like.shape[1], device=like.device) < num_drafts.unsqueeze(1)
