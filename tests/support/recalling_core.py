"""A deterministic engine core that answers a question with the worked example that stands last before it.

Its answers are right where that example's number happens to be the question's: they tell which examples were drawn.
"""

import re

from echo_core import END, EchoCore

from legato.config.options import EngineOptions
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import resolve_model

WORKED = re.compile(r"[^\n:>]*\n#### \d+")


def build(options: EngineOptions, console: object = None) -> "RecallingCore":
    """Build the core."""
    return RecallingCore(options)


class RecallingCore(EchoCore):
    """Knows nothing but what the prompt tells."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._tokenizer = load_tokenizer(resolve_model(options.model, options.load_format))

    def answer(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens of the last worked example's answer, and an end."""
        text = self._tokenizer.decode(prompt, skip_special_tokens=False)
        last = WORKED.findall(text)[-1]
        return (*self._tokenizer.encode(last, add_special_tokens=False), END)
