"""Request bodies -> sampling parameters. Owns the translation; the ranges are SamplingParams' own."""

from typing import Any

from legato.errors import RequestError
from legato.flow.sampling_params import SamplingParams
from legato.server.guided import guide_of
from legato.server.requests import ChatBody, CompletionBody, GenerationBody

MOST_BIAS = 100.0
_SAME_NAME = (
    "n",
    "min_tokens",
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "ignore_eos",
    "seed",
    "prompt_logprobs",
)


def completion_params(body: CompletionBody) -> SamplingParams:
    """Return the parameters of a completion; raises RequestError."""
    given = _common(body)
    if body.max_tokens is not None:
        given["max_tokens"] = body.max_tokens
    if body.logprobs is not None:
        given["logprobs"] = body.logprobs
        if body.echo and "prompt_logprobs" not in given:
            given["prompt_logprobs"] = body.logprobs
    return SamplingParams(**given)


def chat_params(body: ChatBody, *, max_logprobs: int) -> SamplingParams:
    """Return the parameters of a chat answer, by default as long as the model allows; raises RequestError."""
    given = _common(body)
    given["max_tokens"] = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    top = body.top_logprobs or 0
    if top and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    if not 0 <= top <= max_logprobs:
        details = {"requested": top, "limit": f"0 to {max_logprobs}"}
        raise RequestError("top_logprobs is out of range", details, param="top_logprobs")
    if body.logprobs:
        given["logprobs"] = top
    return SamplingParams(**given)


def _common(body: GenerationBody) -> dict[str, Any]:
    given = {name: value for name in _SAME_NAME if (value := getattr(body, name)) is not None}
    if body.top_k is not None:
        given["top_k"] = 0 if body.top_k == -1 else body.top_k
    if body.stop is not None:
        given["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.stop_token_ids is not None:
        given["stop_token_ids"] = tuple(body.stop_token_ids)
    if body.allowed_token_ids is not None:
        given["allowed_token_ids"] = tuple(body.allowed_token_ids)
    if body.logit_bias is not None:
        given["logit_bias"] = tuple(_bias(token, value) for token, value in body.logit_bias.items())
    given["guided"] = guide_of(body)
    return given


def _bias(token: str, value: float) -> tuple[int, float]:
    if not (token.isascii() and token.isdigit()):
        raise RequestError("logit_bias takes token ids", {"found": repr(token)}, param="logit_bias")
    if abs(value) > MOST_BIAS:
        details = {"found": f"{value:g} for token {token}", "limit": f"-{MOST_BIAS:g} to {MOST_BIAS:g}"}
        raise RequestError("logit_bias is out of range", details, param="logit_bias")
    return int(token), value
