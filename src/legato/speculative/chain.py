"""Chain drafting: one token after another, each the likeliest. Owns the order of the passes and knows no head.

The first draft comes of the state that the pass over the step's tokens left; each further one of a pass over the draft
before it, beginning with that state. Passes may go on past the number that a head was trained for.
"""

from collections.abc import Callable

import torch

from legato.runner.drafter import RoundRequests, TokenPass

Draft = Callable[[torch.Tensor, torch.Tensor], object]
"""States [num_reqs, state_size], and [num_reqs] int64 where it writes the likeliest next token of each."""
Advance = Callable[[torch.Tensor, torch.Tensor, TokenPass], torch.Tensor]
"""Tokens [num_reqs] int64, the states before them and where they stand -> the states after them."""


def chain(requests: RoundRequests, draft: Draft, advance: Advance) -> torch.Tensor:
    """Return the drafts of all requests, [num_reqs, num_drafts] int64, in one pass less than there are drafts."""
    assert requests.state is not None, "a chain begins with what extend left"
    state, drafts = requests.state, room_for_drafts(requests)
    draft(state, drafts[0])
    for index in range(requests.num_drafts - 1):
        state = advance(drafts[index], state, requests.token_pass(index))
        draft(state, drafts[index + 1])
    return drafts.t()


def room_for_drafts(requests: RoundRequests) -> torch.Tensor:
    """Return where the drafts of each pass go, [num_drafts, num_reqs] int64, each aligned as a tensor of its own."""
    num_reqs = requests.rows.shape[0]
    return requests.rows.new_empty(requests.num_drafts, num_reqs + num_reqs % 2)[:, :num_reqs]
