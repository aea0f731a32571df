"""What followed the latest tokens of a sequence where they stood before: drafts without weights, in one launch.

The longest run of latest tokens that stands earlier in the sequence is taken, the latest such place, and what follows
there; behind the end of the sequence the tokens since that place repeat. Without any such place the last token repeats.
"""

from typing import NamedTuple

import torch


class NewTokens(NamedTuple):
    """What a step added to sequences."""

    rows: torch.Tensor  # [num_reqs] int64
    tokens: torch.Tensor  # [num_reqs, width] int64, the new tokens of each, and what does not count
    num_tokens: torch.Tensor  # [num_reqs] int64, how many of them count: 1 to width
    last_positions: torch.Tensor  # [num_reqs] int64, of the last one that counts


def look_up(history: torch.Tensor, new: NewTokens, *, num_drafts: int, shortest: int, longest: int) -> torch.Tensor:
    """Write ``new`` tokens to ``history`` [num_rows, capacity] int32, and return what may follow them.

    Runs of ``shortest`` to ``longest`` tokens are looked for, each at least 1. Returns [num_reqs, num_drafts] int64.
    """
    if history.is_cuda:
        from legato.kernels import prompt_lookup_triton

        return prompt_lookup_triton.look_up(history, new, num_drafts, shortest, longest)
    return look_up_reference(history, new, num_drafts=num_drafts, shortest=shortest, longest=longest)


def look_up_reference(
    history: torch.Tensor, new: NewTokens, *, num_drafts: int, shortest: int, longest: int
) -> torch.Tensor:
    """Compute :func:`look_up` with torch alone."""
    _append(history, new)
    if num_drafts == 0:
        return new.tokens[:, :0]
    known = history.index_select(0, new.rows)  # [num_reqs, capacity] int32
    last = new.last_positions.clamp(max=known.shape[1] - 1).unsqueeze(1)  # [num_reqs, 1]
    place = _latest_place(known, last, shortest, longest)  # [num_reqs, 1], of the run's last token
    offsets = torch.arange(num_drafts, device=known.device)
    following = (place + 1 + offsets % (last - place)).clamp(min=0)
    return known.gather(1, following).to(torch.int64)


def _append(history: torch.Tensor, new: NewTokens) -> None:
    """Write the new tokens that count at their positions; of a padded request, which has none, to its first."""
    last = new.num_tokens.unsqueeze(1) - 1
    offsets = torch.minimum(torch.arange(new.tokens.shape[1], device=history.device), last)  # the last one repeats
    places = (new.last_positions.unsqueeze(1) - last + offsets).clamp(0, history.shape[1] - 1)
    rows = new.rows.unsqueeze(1).expand_as(places)
    history.index_put_((rows, places), new.tokens.gather(1, offsets).to(torch.int32))


def _latest_place(known: torch.Tensor, last: torch.Tensor, shortest: int, longest: int) -> torch.Tensor:
    """Return where the best earlier run ends, [num_reqs, 1] int64; where there is none, the last token but one."""
    capacity = known.shape[1]
    columns = torch.arange(capacity, device=known.device)
    matches = columns < last  # [num_reqs, capacity] bool: run ends before the last token
    run = torch.zeros_like(known)
    for back in range(longest):
        token = known.gather(1, (last - back).clamp(min=0))
        matches = matches & (known.roll(back, 1) == token) & (columns >= back)
        run = run + matches
    score = torch.where(run >= shortest, run * capacity + columns, -1)
    best, place = score.max(dim=1, keepdim=True)
    return torch.where(best >= 0, place, last - 1)
