"""``--speculative-config`` -> SpeculativeConfig. Owns the keys as people type them, and what is wrong with them."""

from typing import Any

from legato.config.speculative import RejectionMethod, SpeculativeConfig, rates_of_length, rates_of_positions
from legato.engine.json_option import json_settings
from legato.errors import ConfigError
from legato.speculative.registry import DRAFTERS

MAX_DRAFTS = 15
"""Attention kernels for verification take 16 tokens of a request."""
_MOST_CHOSEN = 5
"""Most drafts of a step where their number is chosen and no bound is given: beyond it hardly any drafter gains."""
_OPTION, _EXAMPLE = "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}'
_METHODS = {"standard": RejectionMethod.EXACT, "exact": RejectionMethod.EXACT, "synthetic": RejectionMethod.SYNTHETIC}
"""``rejection_sample_method`` as typed -> ours."""
_KEYS = (
    "method",
    "model",
    "num_speculative_tokens",
    "max_num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "rejection_sample_method",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rates",
    "load_format",
    "draft_tensor_parallel_size",
)


def speculative_request(text: str | None) -> SpeculativeConfig | None:
    """Return what the option asks for; None: no speculation.

    Raises ConfigError for a text that cannot be read, an unknown key or method, and for values that are out of range
    or contradict each other.
    """
    if text is None:
        return None
    settings = speculative_settings(text)
    num_drafts, chosen_per_step = _num_drafts(settings)
    shortest, longest = _lookup(settings)
    method, rates = _rejection(settings, num_drafts)
    return SpeculativeConfig(
        method=_method(settings),
        num_speculative_tokens=num_drafts,
        chosen_per_step=chosen_per_step,
        model=_text(settings, "model"),
        load_format=_text(settings, "load_format") or "auto",
        prompt_lookup_min=shortest,
        prompt_lookup_max=longest,
        rejection_method=method,
        acceptance_rates=rates,
    )


def speculative_settings(text: str) -> dict[str, Any]:
    """Return the settings that are not null. Raises ConfigError for a text that cannot be read, or an unknown key."""
    settings = json_settings(_OPTION, text, _KEYS, _EXAMPLE)
    if settings.get("draft_tensor_parallel_size", 1) != 1:
        raise _out_of_range("draft_tensor_parallel_size", settings["draft_tensor_parallel_size"], "1: one device")
    return settings


def _num_drafts(settings: dict[str, Any]) -> tuple[int, bool]:
    """Return k, or the most where it is to be chosen for each step, and whether it is."""
    if settings.get("num_speculative_tokens") == "auto":
        return _whole(settings, "max_num_speculative_tokens", low=1, high=MAX_DRAFTS, default=_MOST_CHOSEN), True
    if "max_num_speculative_tokens" in settings:
        raise ConfigError(
            "max_num_speculative_tokens bounds a choice, and there is none",
            {
                "requested": f"num_speculative_tokens {settings.get('num_speculative_tokens')}",
                "options": '"num_speculative_tokens": "auto" | leave it out',
            },
        )
    return _whole(settings, "num_speculative_tokens", low=1, high=MAX_DRAFTS, or_else='"auto"'), False


def _method(settings: dict[str, Any]) -> str:
    method = settings.get("method")
    if not isinstance(method, str) or method not in DRAFTERS:
        found = "no method" if method is None else f"method {method!r}"
        raise ConfigError(
            "there is no such way to draft",
            {
                "requested": f"{_OPTION} with {found}",
                "options": " | ".join(DRAFTERS),
                "example": f"{_OPTION} '{_EXAMPLE}'",
            },
        )
    return method


def _lookup(settings: dict[str, Any]) -> tuple[int, int]:
    """Return the shortest and longest run that is looked up."""
    longest = _whole(settings, "prompt_lookup_max", low=1, high=64, default=4)
    shortest = _whole(settings, "prompt_lookup_min", low=1, high=64, default=1)
    if shortest > longest:
        raise ConfigError(
            "prompt_lookup_min is above prompt_lookup_max",
            {"requested": f"at least {shortest} tokens, at most {longest}", "options": "a smaller prompt_lookup_min"},
        )
    return shortest, longest


def _rejection(settings: dict[str, Any], num_drafts: int) -> tuple[RejectionMethod, tuple[float, ...]]:
    """Return the method, and for a synthetic one the chance of each draft to stand after those before it."""
    name = settings.get("rejection_sample_method", "standard")
    if name not in _METHODS:
        raise ConfigError(
            "there is no such rejection_sample_method", {"requested": name, "options": "standard | synthetic"}
        )
    length, rates = settings.get("synthetic_acceptance_length"), settings.get("synthetic_acceptance_rates")
    if _METHODS[name] is RejectionMethod.EXACT:
        if length is not None or rates is not None:
            raise ConfigError(
                "synthetic acceptance was given, but not asked for",
                {
                    "requested": "synthetic_acceptance_length or synthetic_acceptance_rates",
                    "found": f"rejection_sample_method {name}",
                    "options": '"rejection_sample_method": "synthetic" | leave them out',
                },
            )
        return RejectionMethod.EXACT, ()
    if (length is None) == (rates is None):
        raise ConfigError(
            "synthetic acceptance needs one measure",
            {
                "found": "neither" if length is None else "both",
                "options": f'"synthetic_acceptance_length": 1 to {1 + num_drafts} | "synthetic_acceptance_rates": […]',
            },
        )
    return RejectionMethod.SYNTHETIC, _of_length(length, num_drafts) if rates is None else _of_rates(rates, num_drafts)


def _of_length(length: Any, num_drafts: int) -> tuple[float, ...]:
    if not _is_number(length) or not 1 <= length <= 1 + num_drafts:
        limit = f"1 to {1 + num_drafts}: the tokens of a round with {num_drafts} drafts, its own token counted"
        raise _out_of_range("synthetic_acceptance_length", length, limit)
    return rates_of_length(float(length), num_drafts)


def _of_rates(rates: Any, num_drafts: int) -> tuple[float, ...]:
    limit = f"{num_drafts} shares of rounds from 0 to 1, one per draft, none above the one before"
    good = isinstance(rates, list) and len(rates) == num_drafts and all(map(_is_number, rates))
    if not good or not all(0 <= after <= before for before, after in zip([1, *rates], rates, strict=False)):
        raise _out_of_range("synthetic_acceptance_rates", rates, limit)
    return rates_of_positions(tuple(map(float, rates)))


def _whole(
    settings: dict[str, Any], key: str, *, low: int, high: int, default: int | None = None, or_else: str | None = None
) -> int:
    value = settings.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise _out_of_range(
            key,
            "nothing" if value is None else value,
            f"a whole number, {low} to {high}" + (f", or {or_else}" if or_else else ""),
        )
    return value


def _text(settings: dict[str, Any], key: str) -> str | None:
    value = settings.get(key)
    if value is not None and not isinstance(value, str):
        raise _out_of_range(key, value, "a text")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _out_of_range(key: str, requested: object, limit: str) -> ConfigError:
    return ConfigError(f"{key} of {_OPTION} is out of range", {"requested": requested, "limit": limit})
