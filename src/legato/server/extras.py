"""Request fields that Legato does not act on. Owns which are accepted; see docs/decisions/request-fields.md.

Some have no bearing on the answer and are accepted with any value; others would change it, and are accepted only with
values that ask for what Legato does anyway. All else is refused by name, so that nothing is ignored in silence.
"""

from typing import Any

from legato.server.errors import ApiError

NO_BEARING = frozenset(
    {
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "request_id",
    }
)
"""About accounts, storage and billing, or, in a completion, about tools that are not called anyway."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "detokenize": (True,),
    "early_stopping": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1, 1.0),
    "modalities": (["text"],),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "typical_p": (1, 1.0),
    "use_beam_search": (False,),
}
"""Field -> values, besides null, that ask for nothing unusual."""


def check_extras(extras: dict[str, Any]) -> None:
    """Raise ApiError for a field that is unknown, or that asks for what Legato does not do."""
    for field, value in extras.items():
        if field in NO_BEARING:
            continue
        if field not in NEUTRAL:
            raise ApiError(400, f"{field}: there is no such field", param=field, code="unknown_field")
        if value is not None and not any(_same(value, neutral) for neutral in NEUTRAL[field]):
            raise ApiError(400, f"{field}: this value is not supported", param=field, code="unsupported_value")


def _same(value: Any, neutral: Any) -> bool:
    # In JSON, true is not the number 1.
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
