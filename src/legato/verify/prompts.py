"""What a verification asks the engines. Owns the default prompts and the form of a file of them."""

import json
import random
from pathlib import Path

from legato.config.engine import EngineConfig
from legato.engine.input_processor import Prompt
from legato.errors import ConfigError
from legato.loading.tokenizer import Tokenizer

DEFAULT_TEXTS = (
    "The capital of France is",
    "1, 1, 2, 3, 5, 8,",
    "def greet(name):\n",
    "Once upon a time there was a small engine that ran on captured graphs. Every morning",
    "Water",
    "List three planets, then say one thing about each of them: ",
)
_DEFAULT_LENGTHS = (5, 1, 13, 3, 24, 8)
"""Of random prompts, where there is no tokenizer."""


def read_prompts(path: Path) -> list[Prompt]:
    """Return one prompt per line: text, or token ids as a JSON list. Raises ConfigError for a file without any."""
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the prompts cannot be read", {"requested": f"--prompts {path}", "found": error}) from error
    if not lines:
        details = {"requested": f"--prompts {path}", "options": "one prompt on each line"}
        raise ConfigError("there is no prompt in the file", details)
    return [_prompt(line) for line in lines]


def default_prompts(tokenizer: Tokenizer | None, config: EngineConfig, max_tokens: int) -> list[Prompt]:
    """Return prompts of several lengths that leave room for ``max_tokens``: texts, or random token ids."""
    longest = max(1, config.scheduler.max_model_len - max_tokens)
    if tokenizer is None:
        draw = random.Random(0)
        return [
            [draw.randrange(config.model.vocab_size) for _ in range(min(length, longest))]
            for length in _DEFAULT_LENGTHS
        ]
    return [tokenizer.encode(text, add_special_tokens=True)[:longest] for text in DEFAULT_TEXTS]


def _prompt(line: str) -> Prompt:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return line
    return value if isinstance(value, list) and all(type(token) is int for token in value) else line
