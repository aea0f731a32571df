"""Scheduler -> frontend: what happened to a request. Crosses the process border, so it is plain data."""

from enum import StrEnum

from msgspec import Struct

from legato.flow.step_output import TokenLogprobs


class FinishReason(StrEnum):
    """Why an output ended, in the words of the HTTP interface."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class RequestUpdate(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """New tokens of one request, and its end if it ended. A struct, as it is made for each request at every step."""

    request_id: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    admitted: float | None = None
    """When its first step was formed, in monotonic seconds; with its first tokens alone."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The token id or string that ended the output, unless it was an end token of the model."""
    error: str | None = None
    """Message, where ``finish_reason`` is ``error``."""
