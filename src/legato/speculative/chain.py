"""Chain drafting: one token after another, each the likeliest. Owns the order of the passes and knows no head.

The first draft comes of the state that the pass over the step's tokens left; each further one of a pass over the draft
before it, beginning with that state. Passes may go on past the number that a head was trained for.
"""

from collections.abc import Callable

import torch

from legato.runner.drafter import RoundRequests, TokenPass

Draft = Callable[[torch.Tensor], torch.Tensor]
"""States [num_reqs, state_size] -> the likeliest next token of each, [num_reqs] int64."""
Advance = Callable[[torch.Tensor, torch.Tensor, TokenPass], torch.Tensor]
"""Tokens [num_reqs] int64, the states before them and where they stand -> the states after them."""


def chain(requests: RoundRequests, draft: Draft, advance: Advance) -> torch.Tensor:
    """Return the drafts of all requests, [num_reqs, num_drafts] int64, in one pass less than there are drafts."""
    assert requests.state is not None, "a chain begins with what extend left"
    state = requests.state
    drafts = [draft(state)]
    for index in range(requests.num_drafts - 1):
        state = advance(drafts[-1], state, requests.token_pass(index))
        drafts.append(draft(state))
    return torch.stack(drafts, dim=1)
