"""Typed reading of fields from a model's own description. Owns the errors for a description that lies."""

from collections.abc import Mapping
from typing import Any

from legato.errors import ModelError


def lie(file: str, field: str, expected: object, found: object) -> ModelError:
    """Return the error for a field that is missing, of the wrong type, or at odds with others."""
    return ModelError(
        f"the model's description does not hold together: {field}",
        {"file": file, "field": field, "expected": expected, "found": found},
    )


class Fields:
    """Fields of one file. An absent field, or null, takes the default; without a default it is an error."""

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values = values
        self.file = file

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return a whole number that is at least ``minimum``."""
        value = self._get(name, default, f"a whole number of at least {minimum}")
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise lie(self.file, name, f"a whole number of at least {minimum}", repr(value))
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number above zero."""
        value = self._get(name, default, "a number above 0")
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise lie(self.file, name, "a number above 0", repr(value))
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._get(name, default, "true or false")
        if not isinstance(value, bool):
            raise lie(self.file, name, "true or false", repr(value))
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._get(name, default, "a string")
        if not isinstance(value, str):
            raise lie(self.file, name, "a string", repr(value))
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping; an absent one is empty."""
        value = self._get(name, {}, "a mapping")
        if not isinstance(value, dict):
            raise lie(self.file, name, "a mapping", repr(value))
        return value

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """Return one token id or a list of them, each inside the vocabulary; an absent field is empty."""
        value = self._get(name, (), "a token id or a list of them")
        ids = value if isinstance(value, (list, tuple)) else [value]
        for token_id in ids:
            if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < vocab_size:
                raise lie(self.file, name, f"token ids from 0 to {vocab_size - 1}", repr(value))
        return tuple(ids)

    def _get(self, name: str, default: Any, expected: str) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise lie(self.file, name, expected, "nothing: the field is missing")
        return value
