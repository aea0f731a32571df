"""Frontend -> user: text and tokens of one request so far.

Structs, as they are made for each request at every step.
"""

from msgspec import Struct

from legato.flow.request_update import FinishReason
from legato.flow.step_output import TokenLogprobs


class CompletionOutput(Struct, frozen=True, kw_only=True, gc=False):
    """One of the ``n`` outputs of a request. Cumulative, unless the stream was asked for deltas."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


class RequestOutput(Struct, frozen=True, kw_only=True, gc=False):
    """All outputs of one request."""

    request_id: str
    prompt: str | None
    """None: the request came as token ids and there is no tokenizer."""
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """[prompt_len], the first None: nothing precedes it. None: not asked for."""
    num_cached_tokens: int = 0
    finished: bool = False
    error: str | None = None
    """Message, where an output ended with ``error``."""
