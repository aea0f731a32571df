"""Which drafts stand: the length of the accepted run, and what a round begins again with.

Owns the comparison of drafts with what the target draws. A drafter proposes one token per position, not a
distribution; for such a point mass rejection sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv
2302.01318) comes down to this: draw from the target at every position, and accept while the draw equals the draft.
Draft x is then accepted with the target's probability of x, and a draw that differs has the target's distribution
without x, which is the residual that the papers sample from. As draws depend on (seed, position, token) alone, the
output is token for token that of plain decoding, greedy or not.
"""

from typing import NamedTuple

import torch

from legato.kernels.random_bits import random_bits


class Verified(NamedTuple):
    """What a round's target leaves to be judged, of ``width`` places of each request."""

    sampled: torch.Tensor  # [num_reqs, width] int64, contiguous: the draw after each token
    given: torch.Tensor | None  # [num_reqs] int64: what comes in place of the first draw, unless negative; None: none
    rows: torch.Tensor  # [num_reqs] int64
    drafts: torch.Tensor  # [num_rows, at least width - 1] int64, of all rows
    num_drafts: torch.Tensor  # [num_reqs] int64: those beyond it do not count
    first_positions: torch.Tensor  # [num_reqs] int64, of the first draw
    first_places: torch.Tensor  # [num_reqs] int32 or int64, of the token before it among the step's flat tokens


class Accepted(NamedTuple):
    """Where the judgement goes."""

    tokens: torch.Tensor  # [num_reqs, width] int64: the new tokens, then what does not count
    num_tokens: torch.Tensor  # [num_reqs] int64, how many of them count
    last_positions: torch.Tensor  # [num_reqs] int64, of the last one that counts
    last_places: torch.Tensor  # [num_reqs] int64, of the token before it among the step's flat tokens


class Coins(NamedTuple):
    """What decides instead of the target: a coin for each draft, which depends on (seed, position) alone."""

    seeds: torch.Tensor  # [num_rows] int64, mixed; of all rows
    bounds: torch.Tensor  # [at least width - 1] int32: the draft stands where the coin's random bits are below it


def accept(verified: Verified, accepted: Accepted, coins: Coins | None = None) -> None:
    """Find how many drafts stand and write to ``accepted``; with ``coins``, drafts that stand are given out as tokens.

    On a GPU all of it is one launch.
    """
    if verified.rows.is_cuda:
        from legato.kernels import acceptance_triton

        acceptance_triton.accept(verified, accepted, coins)
    else:
        accept_reference(verified, accepted, coins)


def accept_reference(verified: Verified, accepted: Accepted, coins: Coins | None = None) -> None:
    """Compute :func:`accept` with torch alone."""
    sampled, given = verified.sampled, verified.given
    if given is not None:
        first = torch.where(given.unsqueeze(1) < 0, sampled[:, :1], given.unsqueeze(1))
        sampled = torch.cat([first, sampled[:, 1:]], dim=1)
    num_drafts = sampled.shape[1] - 1
    drafts = verified.drafts.index_select(0, verified.rows)[:, :num_drafts]
    if coins is None:
        stands = sampled[:, :-1] == drafts
    else:
        columns = torch.arange(num_drafts, device=drafts.device)
        positions = verified.first_positions.unsqueeze(1) + columns
        stands = tosses(coins.seeds.index_select(0, verified.rows), positions, coins.bounds)
    num_accepted = accepted_run(stands, verified.num_drafts)
    if coins is not None:
        sampled = take_drafts(sampled, drafts, num_accepted)
    accepted.tokens.copy_(sampled)
    accepted.num_tokens.copy_(num_accepted + 1)
    accepted.last_positions.copy_(verified.first_positions + num_accepted)
    accepted.last_places.copy_(verified.first_places + num_accepted)


def accepted_run(stands: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    """Return how many leading drafts of each row stand.  # [num_reqs] int64

    ``stands`` [num_reqs, k] bool; ``num_drafts`` [num_reqs] int64: those beyond it do not.
    """
    within = torch.arange(stands.shape[1], device=stands.device) < num_drafts.unsqueeze(1)
    return (stands & within).to(torch.int64).cumprod(dim=1).sum(dim=1)


def tosses(seeds: torch.Tensor, positions: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Return how the coins of drafts fall.  # [num_reqs, k] bool

    ``seeds`` [num_reqs] int64, mixed; ``positions`` [num_reqs, k] int64 of the drafts; ``bounds`` [at least k] int32.
    """
    num_reqs, num_drafts = positions.shape
    keys = seeds.unsqueeze(1).expand(num_reqs, num_drafts).reshape(-1)
    hashes = bounds.new_zeros(1)  # no token's: the position alone counts
    bits = random_bits(keys, positions.reshape(-1), hashes).view(num_reqs, num_drafts)
    return bits < bounds[:num_drafts]


def take_drafts(sampled: torch.Tensor, drafts: torch.Tensor, num_accepted: torch.Tensor) -> torch.Tensor:
    """Return ``sampled`` [num_reqs, 1 + k] with the accepted drafts in place of the target's draws."""
    columns = torch.arange(drafts.shape[1], device=drafts.device)
    chosen = torch.where(columns < num_accepted.unsqueeze(1), drafts, sampled[:, :-1])
    return torch.cat([chosen, sampled[:, -1:]], dim=1)
