"""What a request may ask of this engine, beyond what is true of any. Owns those limits and the errors for them."""

import math
from collections.abc import Collection

from legato.config.engine import EngineConfig
from legato.errors import RequestError
from legato.flow.request import Request
from legato.flow.sampling_params import SamplingParams

MAX_BAD_WORDS = 1024
MAX_BAD_WORD_TOKENS = 32


def check_prompt(token_ids: tuple[int, ...], config: EngineConfig) -> None:
    """Raise RequestError for a prompt that is empty, too long, or not of the model's vocabulary."""
    if not token_ids:
        raise RequestError("the prompt is empty", {"limit": "at least 1 token"}, param="prompt")
    _check_token_ids(token_ids, "prompt", config)
    limit = config.scheduler.max_model_len
    if len(token_ids) > limit - 1:
        raise RequestError(
            "the prompt is too long",
            {
                "requested": f"{len(token_ids)} prompt tokens",
                "limit": f"{limit - 1}: --max-model-len {limit}, one of them for the output",
                "options": "a shorter prompt | a larger --max-model-len",
            },
            param="prompt",
        )


def resolve_max_tokens(num_prompt_tokens: int, params: SamplingParams, config: EngineConfig) -> int:
    """Return how many tokens may be generated; raises RequestError where more are asked for than fit."""
    limit = config.scheduler.max_model_len
    if params.max_tokens is None:
        return limit - num_prompt_tokens
    if num_prompt_tokens + params.max_tokens > limit:
        total = num_prompt_tokens + params.max_tokens
        raise RequestError(
            "prompt and output together are longer than the model's length",
            {
                "requested": f"{num_prompt_tokens} prompt tokens + max_tokens {params.max_tokens} = {total}",
                "limit": f"--max-model-len {limit}",
                "options": f"max_tokens {limit - num_prompt_tokens} or less | no max_tokens: as many as fit",
            },
            param="max_tokens",
        )
    return params.max_tokens


def check_params(params: SamplingParams, config: EngineConfig) -> None:
    """Raise RequestError for parameters that this model or engine cannot serve."""
    for param in ("logprobs", "prompt_logprobs"):
        value = getattr(params, param)
        if value is not None and value > config.max_logprobs:
            limit = f"--max-logprobs {config.max_logprobs}"
            raise RequestError(f"{param} is out of range", {"requested": value, "limit": limit}, param=param)
    _check_token_ids(params.stop_token_ids, "stop_token_ids", config)
    _check_token_ids(params.allowed_token_ids or (), "allowed_token_ids", config)
    _check_token_ids([token_id for token_id, _ in params.logit_bias], "logit_bias", config)
    for token_id, value in params.logit_bias:
        if not math.isfinite(value):
            details = {"requested": f"{value} for token {token_id}", "limit": "a finite number"}
            raise RequestError("logit_bias is out of range", details, param="logit_bias")
    _check_bad_words(params.bad_words_token_ids, config)


def check_something_is_left(request: Request) -> None:
    """Raise RequestError where the allowed tokens are all forbidden, at least before ``min_tokens``."""
    params = request.params
    if params.allowed_token_ids is None:
        return
    forbidden = {word[0] for word in params.bad_words_token_ids if len(word) == 1}
    if params.min_tokens > 0:
        forbidden |= request.stop_token_ids
    if forbidden.issuperset(params.allowed_token_ids):
        details = {"found": "every allowed token is a bad word, or a stop token before min_tokens"}
        raise RequestError("no token is left to generate", details, param="allowed_token_ids")


def _check_bad_words(words: tuple[tuple[int, ...], ...], config: EngineConfig) -> None:
    longest = max((len(word) for word in words), default=1)
    if len(words) > MAX_BAD_WORDS or longest > MAX_BAD_WORD_TOKENS or not all(words):
        details = {
            "requested": f"{len(words)} sequences, the longest of {longest} tokens",
            "limit": f"{MAX_BAD_WORDS} sequences of 1 to {MAX_BAD_WORD_TOKENS} tokens",
        }
        raise RequestError("bad_words is out of range", details, param="bad_words")
    for word in words:
        _check_token_ids(word, "bad_words", config)


def _check_token_ids(token_ids: Collection[int], param: str, config: EngineConfig) -> None:
    vocab_size = config.model.vocab_size
    if not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        return
    wrong = [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
    shown = ", ".join(str(token_id) for token_id in wrong[:5]) + (", …" if len(wrong) > 5 else "")
    details = {"requested": f"token ids {shown}", "limit": f"0 to {vocab_size - 1}, the model's vocabulary"}
    raise RequestError(f"{param} has token ids outside the vocabulary", details, param=param)
