"""What the sampling tests share: a state with rows filled, and requests made of a few words."""

from typing import Any

import torch

from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams
from legato.graphs.modes import SamplerVariant
from legato.sampling.sampler import sample
from legato.sampling.state import SamplingState


def request_of(
    *,
    seed: int = 0,
    prompt: tuple[int, ...] = (0,),
    stop_token_ids: frozenset[int] = frozenset(),
    **params: Any,
) -> Request:
    """Return a request with these sampling parameters."""
    return Request(
        request_id="r",
        prompt_token_ids=prompt,
        params=SamplingParams(max_tokens=1000, **params),
        seed=seed,
        stop_token_ids=stop_token_ids,
        max_tokens=1000,
        arrival=0.0,
    )


def state_of(
    *requests: Request, vocab_size: int, max_num_seqs: int | None = None, device: torch.device | str = "cpu"
) -> SamplingState:
    """Return a state with the requests on rows 0, 1, 2, …"""
    state = SamplingState(max_num_seqs or len(requests), vocab_size, device)
    for row, request in enumerate(requests):
        state.admit(row, request)
    return state


def draws(logits: torch.Tensor, request: Request, variant: SamplerVariant, count: int) -> torch.Tensor:
    """Return ``count`` tokens drawn from ``logits`` [vocab] at successive positions of one request.  # [count] int64"""
    state = state_of(request, vocab_size=logits.shape[0], device=logits.device)
    rows = torch.zeros(count, dtype=torch.int64, device=logits.device)
    positions = torch.arange(1, count + 1, device=logits.device)
    return sample(logits.expand(count, -1), rows, positions, state, variant).cpu()


def row_numbers(*rows: int) -> torch.Tensor:
    """Return row or position numbers as the sampler takes them.  # [len(rows)] int64"""
    return torch.tensor(rows, dtype=torch.int64)
