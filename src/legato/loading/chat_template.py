"""Chat messages -> text, by the model's own Jinja template. Owns the sandbox that a downloaded template runs in.

The environment offers what templates written for Hugging Face's transformers expect of it: ``tojson`` without HTML
escapes, ``raise_exception``, ``strftime_now``, loop controls, and the ``generation`` block, which is plain text here.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from legato.errors import ModelError, RequestError

# A template is a program of its author's: whatever it trips over in the messages is the request's fault.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
)


class ChatTemplate:
    """A compiled template with the special tokens that it may name."""

    def __init__(self, text: str, special_tokens: Mapping[str, str]) -> None:
        self.text = text
        self.special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(text)
        except jinja2.TemplateSyntaxError as error:
            found = f"line {error.lineno}: {error.message}"
            raise ModelError("the chat template cannot be read", {"expected": "Jinja", "found": found}) from error

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, **variables: Any) -> str:
        """Return the prompt's text. Raises RequestError with what the template says of these messages."""
        values = {"tools": None, "documents": None, **self.special_tokens, **variables}
        try:
            return self._template.render(messages=messages, add_generation_prompt=add_generation_prompt, **values)
        except _TEMPLATE_FAILURES as error:
            found = f"{type(error).__name__}: {error}"
            raise RequestError(
                "the chat template refuses these messages", {"found": found}, param="messages"
            ) from error


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}`` marks what an assistant wrote, for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
