"""Runner -> scheduler: what a step computed, in host values."""

from dataclasses import dataclass

from msgspec import Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Log-probabilities at one position, before temperature and filters."""

    token_id: int
    logprob: float
    rank: int
    """1: the best token."""
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class RequestStep(Struct, frozen=True, kw_only=True, gc=False):
    """One request's result of the step. A struct: it is made for each request at every step, ten times as fast."""

    request_id: str
    token_ids: tuple[int, ...]
    """New tokens; empty while prefilling."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per new token, where asked for."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """For the prompt tokens that follow the ones fed in this step, where asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Results in the order of the batch's requests."""

    step: int
    requests: tuple[RequestStep, ...]
