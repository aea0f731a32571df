"""Which parsers there are, which one a model's chat template asks for, and how a call is begun on its behalf."""

from collections.abc import Callable
from dataclasses import dataclass

from legato.server.parsers.hermes import HermesParser
from legato.server.parsers.llama3 import Llama3Parser
from legato.server.parsers.pieces import Parser
from legato.server.parsers.plain import PlainParser
from legato.server.parsers.think import ThinkParser


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStyle:
    """One way to write tool calls."""

    parser: Callable[[frozenset[str]], Parser]
    """Takes the names of the declared tools."""
    signs: tuple[str, ...]
    """A chat template that holds one of these teaches this style."""
    opening: str
    """What stands before the object of a call."""
    arguments: str
    """The field of that object with the arguments."""

    def begun(self, name: str | None) -> str:
        """Return the start of a call: of the tool ``name``, up to its arguments, or of one still to be named."""
        return self.opening if name is None else f'{self.opening}{{"name": "{name}", "{self.arguments}": '


CALL_STYLES: dict[str, CallStyle] = {
    "hermes": CallStyle(
        parser=HermesParser,
        signs=("<tool_call>",),
        opening="<tool_call>\n",
        arguments="arguments",
    ),
    "llama3": CallStyle(
        parser=Llama3Parser,
        signs=("<|python_tag|>", "Environment: ipython"),
        opening="",
        arguments="parameters",
    ),
}
AUTO, NONE, THINK = "auto", "none", "think"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStyle:
    """How one model writes its messages."""

    calls: CallStyle | None
    """None: it is not taken to call tools."""
    thinks: bool

    @classmethod
    def of(cls, *, tool_calls: str, reasoning: str, template: str) -> "MessageStyle":
        """Return what the options ask for, ``auto`` read from the text of the chat template."""
        name = _style_of(template) if tool_calls == AUTO else tool_calls
        return cls(
            calls=CALL_STYLES.get(name),
            thinks=reasoning == THINK or (reasoning == AUTO and "</think>" in template),
        )

    def parser(self, names: frozenset[str], *, prompt: str, in_call: bool = False) -> Parser:
        """Return the parser of one message after ``prompt``; ``in_call``: it starts with a call that was begun.

        Without ``names`` there are no tools, and no call is looked for.
        """
        calls = self.calls.parser(names) if self.calls is not None and names else PlainParser()
        if in_call:
            return calls
        return ThinkParser(calls, inside=prompt.rstrip().endswith("<think>")) if self.thinks else calls


def _style_of(template: str) -> str:
    return next((name for name, style in CALL_STYLES.items() if any(sign in template for sign in style.signs)), NONE)
