"""What an output must look like: a JSON value, a regular expression, a choice or a grammar. Pure text, for any process.

Owns the forms and their limits; what a form means token by token is the engine's to find out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from legato.errors import RequestError

MAX_GUIDE_CHARACTERS = 65_536


class GuideKind(StrEnum):
    """How the text of a guide is read."""

    JSON_OBJECT = "json_object"
    """Any JSON object; the text is empty."""
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    """The whole output matches."""
    CHOICE = "choice"
    """A JSON list of strings, one of which is the output."""
    GRAMMAR = "grammar"
    """EBNF in the notation of llama.cpp, from its rule ``root`` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """The form of one request's output. Raises RequestError for one that is empty or too long."""

    kind: GuideKind
    text: str
    compact: bool = False
    """JSON without whitespace of the model's own choice."""
    param: str = field(default="guided", compare=False)
    """What the request calls it, for errors."""

    def __post_init__(self) -> None:
        if (not self.text) != (self.kind is GuideKind.JSON_OBJECT):
            raise RequestError(f"{self.param} is empty", {"limit": "at least 1 character"}, param=self.param)
        if len(self.text) > MAX_GUIDE_CHARACTERS:
            details = {"requested": f"{len(self.text)} characters", "limit": f"{MAX_GUIDE_CHARACTERS} characters"}
            raise RequestError(f"{self.param} is too long", details, param=self.param)

    @classmethod
    def json_object(cls, *, compact: bool = False, param: str = "guided") -> "Guide":
        """Return the guide to any JSON object."""
        return cls(kind=GuideKind.JSON_OBJECT, text="", compact=compact, param=param)

    @classmethod
    def json_schema(
        cls, schema: str | bool | dict[str, Any], *, compact: bool = False, param: str = "guided"
    ) -> "Guide":
        """Return the guide to JSON that ``schema`` accepts, given as text or as what that text means."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return cls(kind=GuideKind.JSON_SCHEMA, text=text, compact=compact, param=param)

    @classmethod
    def regex(cls, pattern: str, *, param: str = "guided") -> "Guide":
        """Return the guide to texts that ``pattern`` matches from their first character to their last."""
        return cls(kind=GuideKind.REGEX, text=pattern, param=param)

    @classmethod
    def choice(cls, choices: Sequence[str], *, param: str = "guided") -> "Guide":
        """Return the guide to one of ``choices``; raises RequestError where there is none, or an empty one."""
        if isinstance(choices, str) or not choices or not all(isinstance(each, str) and each for each in choices):
            details = {"requested": repr(choices)[:200], "limit": "at least one string, none of them empty"}
            raise RequestError(f"{param} takes a list of strings", details, param=param)
        return cls(kind=GuideKind.CHOICE, text=json.dumps(list(choices), ensure_ascii=False), param=param)

    @classmethod
    def grammar(cls, ebnf: str, *, param: str = "guided") -> "Guide":
        """Return the guide to texts that the rule ``root`` of ``ebnf`` derives."""
        return cls(kind=GuideKind.GRAMMAR, text=ebnf, param=param)
