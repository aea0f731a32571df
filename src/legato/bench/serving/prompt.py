"""One prompt to send. Knows neither where it comes from nor whom it is sent to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is asked."""

    content: str | tuple[int, ...]
    """Text, or token ids."""
    output_len: int
    """Tokens of the answer at most."""
