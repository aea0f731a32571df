"""A stream's chunks of ``/v1/completions`` and ``/v1/chat/completions``. Owns which of them bring tokens."""

from typing import Any

import msgspec

from legato.bench.serving.events import MalformedStreamError


class Delta(msgspec.Struct):
    """What is new of a message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct):
    """What is new of a choice, of either interface."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def brings_tokens(self) -> bool:
        """Whether a token is in it: an empty text may be half a character, but beside a role it is none.

        Beside an end it may be either; the chunk itself does not tell.
        """
        delta = self.delta
        if delta is None:
            return bool(self.text) or (self.text == "" and self.finish_reason is None)
        if delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls:
            return True
        return delta.content == "" and delta.role is None and self.finish_reason is None


class Usage(msgspec.Struct):
    """Tokens of a request, as the server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """One event's data."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk:
    """Return a chunk. Raises MalformedStreamError for data that is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedStreamError(f"{error}") from error


def told(body: bytes) -> str:
    """Return in one line what an error's body or event says."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = body.decode(errors="replace")
    return told_by(value)


def told_by(value: Any) -> str:
    """Return in one line what an error's JSON says: its message where there is one."""
    while isinstance(value, dict):
        inner = next((value[name] for name in ("error", "message", "detail") if value.get(name)), None)
        if inner is None:
            break
        value = inner
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())[:160]
