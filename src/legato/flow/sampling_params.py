"""What a request asks of sampling. Owns the parameters, their limits and the errors for what lies outside them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from legato.errors import RequestError
from legato.flow.guide import Guide

MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 64
MAX_N = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request. The defaults draw from the model's whole distribution, 16 tokens.

    Raises RequestError, naming the parameter, for a value outside its range.
    """

    n: int = 1
    """Independent outputs of one prompt."""
    max_tokens: int | None = 16
    """Tokens to generate at most; None: until the model's length is reached."""
    min_tokens: int = 0
    """No stop token before this many tokens."""
    temperature: float = 1.0
    """0: greedy."""
    top_k: int = 0
    """Keep the k best tokens; 0: all."""
    top_p: float = 1.0
    """Keep the smallest set of best tokens with at least this probability (arXiv 1904.09751)."""
    min_p: float = 0.0
    """Keep tokens with at least this share of the best token's probability (arXiv 2407.01082)."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output (arXiv 1909.05858)."""
    presence_penalty: float = 0.0
    """Subtracted once from the logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the output."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value added to its logit)."""
    allowed_token_ids: tuple[int, ...] | None = None
    """Only these may be generated; None: all."""
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear; the last token of one is forbidden after the others."""
    stop: tuple[str, ...] = ()
    """Strings that end the output; not part of the text."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the output, besides the model's own."""
    ignore_eos: bool = False
    """Do not stop at the model's end tokens."""
    seed: int | None = None
    """Same seed, same text; None: drawn by the engine from its own seed."""
    logprobs: int | None = None
    """Log-probabilities of this many best tokens beside the chosen one; None: none."""
    prompt_logprobs: int | None = None
    """The same for every prompt token."""
    guided: Guide | None = None
    """The form that the output must have; None: any."""

    def __post_init__(self) -> None:
        for check in _CHECKS:
            param, value, limit, good = check(self)
            if not good:
                raise RequestError(f"{param} is out of range", {"requested": repr(value), "limit": limit}, param=param)

    @property
    def greedy(self) -> bool:
        """Whether the best token is taken."""
        return self.temperature == 0.0


def _between(
    param: str, low: float, high: float, *, above: bool = False, whole: bool = False, optional: bool = False
) -> "_Check":
    types = (int,) if whole else (int, float)

    def check(params: SamplingParams) -> tuple[str, object, str, bool]:
        value = getattr(params, param)
        good = (optional and value is None) or (
            isinstance(value, types)
            and math.isfinite(value)
            and (low < value if above else low <= value)
            and value <= high
        )
        number = "a whole number, " if whole else ""
        return param, value, f"{number}{'more than' if above else 'at least'} {low:g}, at most {high:g}", good

    return check


def _at_most_items(param: str, most: int) -> "_Check":
    def check(params: SamplingParams) -> tuple[str, object, str, bool]:
        value = getattr(params, param)
        return param, f"{len(value)} items", f"at most {most} items", len(value) <= most

    return check


def _min_tokens(params: SamplingParams) -> tuple[str, object, str, bool]:
    most = math.inf if params.max_tokens is None else params.max_tokens
    good = isinstance(params.min_tokens, int) and 0 <= params.min_tokens <= most
    limit = f"a whole number, at least 0, at most max_tokens ({params.max_tokens})"
    return "min_tokens", params.min_tokens, limit, good


def _allowed(params: SamplingParams) -> tuple[str, object, str, bool]:
    return "allowed_token_ids", params.allowed_token_ids, "at least one token id", params.allowed_token_ids != ()


def _stop(params: SamplingParams) -> tuple[str, object, str, bool]:
    # One string in place of a tuple would be taken for as many stop strings as it has characters.
    value: object = params.stop
    good = not isinstance(value, str) and all(isinstance(stop, str) and stop for stop in params.stop)
    return "stop", params.stop, "a tuple of strings, none of them empty", good


def _guided(params: SamplingParams) -> tuple[str, object, str, bool]:
    # Each of these may forbid what the form requires, so that no token would be left.
    others = {
        "min_tokens": params.min_tokens > 0,
        "ignore_eos": params.ignore_eos,
        "allowed_token_ids": params.allowed_token_ids is not None,
        "bad_words": bool(params.bad_words_token_ids),
    }
    given = [name for name, is_given in others.items() if is_given]
    param = "guided" if params.guided is None else params.guided.param
    limit = "not together with min_tokens, ignore_eos, allowed_token_ids or bad_words"
    return param, f"together with {', '.join(given)}", limit, params.guided is None or not given


_Check = Callable[[SamplingParams], tuple[str, object, str, bool]]
_CHECKS: tuple[_Check, ...] = (
    _between("n", 1, MAX_N, whole=True),
    _between("max_tokens", 1, 2**31, whole=True, optional=True),
    _min_tokens,
    _between("temperature", 0.0, 100.0),
    _between("top_k", 0, 2**31, whole=True),
    _between("top_p", 0.0, 1.0, above=True),
    _between("min_p", 0.0, 1.0),
    _between("repetition_penalty", 0.0, 100.0, above=True),
    _between("presence_penalty", -2.0, 2.0),
    _between("frequency_penalty", -2.0, 2.0),
    _between("seed", -(2**63), 2**63 - 1, whole=True, optional=True),
    _between("logprobs", 0, 2**31, whole=True, optional=True),
    _between("prompt_logprobs", 0, 2**31, whole=True, optional=True),
    _stop,
    _at_most_items("stop", MAX_STOP_STRINGS),
    _at_most_items("stop_token_ids", MAX_STOP_TOKEN_IDS),
    _allowed,
    _guided,
)
