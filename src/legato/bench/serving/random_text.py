"""Random prompts of exact lengths, as token ids or as words. Owns how text of so many tokens is made."""

import random
import re
from collections.abc import Sequence
from typing import Protocol

from legato.errors import ConfigError

_WORD = re.compile(r" [a-z]{2,}")
_LETTER = re.compile(r"[a-z]")
_ENOUGH_WORDS = 4096
_TRIES = 8


class Vocabulary(Protocol):
    """What is asked of a tokenizer."""

    vocab_size: int

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is left out of text."""
        ...


class BareIds:
    """The ids of a model that has no tokenizer."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Raise ConfigError: there is no text."""
        raise _no_tokenizer()

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Raise ConfigError: there is no text."""
        raise _no_tokenizer()

    def is_special(self, token_id: int) -> bool:
        """Return False: nobody knows."""
        return False


class RandomTokens:
    """Token ids of a vocabulary, but for special ones, which could end a prompt."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = range(vocabulary.vocab_size)
        self._ids = [token_id for token_id in ids if not vocabulary.is_special(token_id)]

    def draw(self, generator: random.Random, length: int) -> tuple[int, ...]:
        """Return ``length`` token ids."""
        return tuple(generator.choices(self._ids, k=length))


class RandomWords:
    """Text made of words that are one token each, beside each other too."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._words = _single_tokens(vocabulary, _WORD) or _single_tokens(vocabulary, _LETTER)
        if not self._words:
            details = {"requested": "random words", "options": "--random-input ids | a data set from a file"}
            raise ConfigError("no word is one token of this vocabulary", details)

    def draw(self, generator: random.Random, length: int) -> str:
        """Return text of ``length`` tokens, special ones not counted. Raises ConfigError where it cannot be had."""
        for _ in range(_TRIES):
            text = "".join(generator.choices(self._words, k=length))
            if len(self._vocabulary.encode(text, add_special_tokens=False)) == length:
                return text
        raise ConfigError(
            "random words do not have an exact length in this vocabulary",
            {"requested": f"{length} tokens", "options": "--random-input ids"},
        )


def _single_tokens(vocabulary: Vocabulary, pattern: re.Pattern[str]) -> list[str]:
    """Return texts of the pattern that are one token."""
    found = []
    for token_id in range(vocabulary.vocab_size):
        text = vocabulary.decode([token_id])
        if pattern.fullmatch(text) and vocabulary.encode(text, add_special_tokens=False) == [token_id]:
            found.append(text)
            if len(found) == _ENOUGH_WORDS:
                break
    return found


def _no_tokenizer() -> ConfigError:
    options = "--tokenizer FOLDER | --random-input ids"
    return ConfigError("the model has no tokenizer, so that text cannot be measured in tokens", {"options": options})
