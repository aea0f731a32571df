"""The messages between a frontend and the engine process. Owns their encoding; knows no socket and no engine.

MessagePack with a tag per message. The flow values travel as they are: msgspec encodes dataclasses, and decoding
checks every field against its type.
"""

from typing import Any

import msgspec

import legato.errors
from legato.config.engine import EngineConfig
from legato.config.options import EngineOptions
from legato.errors import EngineDeadError, LegatoError, RequestError
from legato.flow.request import Request
from legato.flow.request_update import RequestUpdate
from legato.observability.live_view import LiveView
from legato.observability.records import StepRecord
from legato.observability.stats import EngineStats

FATAL_CODE = 70
"""How a process ends that has said why. An interpreter that fails by itself ends with another code."""
TOLD_CODES = (0, FATAL_CODE)
"""How a process ends that has sent its last message."""


class ErrorReport(msgspec.Struct, frozen=True):
    """An error on its way to the other process, there to be raised again as what it was."""

    kind: str
    """Class name in :mod:`legato.errors`; any other name arrives as EngineDeadError."""
    summary: str
    details: dict[str, str]
    param: str | None = None

    @classmethod
    def of(cls, error: Exception) -> "ErrorReport":
        """Describe ``error``."""
        if not isinstance(error, LegatoError):
            return cls(type(error).__name__, f"the engine failed: {type(error).__name__}: {error}", {})
        details = {label: str(text) for label, text in error.details.items()}
        return cls(type(error).__name__, error.summary, details, getattr(error, "param", None))

    def to_error(self) -> LegatoError:
        """Rebuild the error."""
        kind = getattr(legato.errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, LegatoError)):
            return EngineDeadError(self.summary, self.details)
        if issubclass(kind, RequestError):
            return kind(self.summary, self.details, param=self.param)
        return kind(self.summary, self.details)


class Start(msgspec.Struct, frozen=True, tag=True):
    """Build the engine: the first message of a frontend."""

    factory: str
    """``module:function`` that takes (options, console) and returns an engine core."""
    options: EngineOptions


class Add(msgspec.Struct, frozen=True, tag=True):
    """Take in requests, all or none of them."""

    requests: tuple[Request, ...]


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Forget requests; no update of theirs follows."""

    request_ids: tuple[str, ...]


class AskStats(msgspec.Struct, frozen=True, tag=True):
    """Send the counts of now."""

    query_id: int


class AskSteps(msgspec.Struct, frozen=True, tag=True):
    """Send the last ``count`` step records."""

    query_id: int
    count: int


class AskGraphs(msgspec.Struct, frozen=True, tag=True):
    """Send the graph report."""

    query_id: int


class AskLive(msgspec.Struct, frozen=True, tag=True):
    """Send the counts of now, and at most ``most`` of the step records that came after the first ``seen``."""

    query_id: int
    seen: int
    most: int


class StartProfile(msgspec.Struct, frozen=True, tag=True):
    """Begin to record what the steps run."""

    query_id: int


class StopProfile(msgspec.Struct, frozen=True, tag=True):
    """End the recording and write it to a file."""

    query_id: int
    path: str


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """End the process: after the requests that it holds, or at once."""

    drain: bool


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine is built."""

    config: EngineConfig


class Updates(msgspec.Struct, frozen=True, tag=True):
    """What one step did."""

    updates: tuple[RequestUpdate, ...]


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """The requests of one Add were not taken in."""

    request_ids: tuple[str, ...]
    error: ErrorReport


class StatsReply(msgspec.Struct, frozen=True, tag=True):
    """Counts of now."""

    query_id: int
    reply: EngineStats


class StepsReply(msgspec.Struct, frozen=True, tag=True):
    """Step records, oldest first."""

    query_id: int
    reply: tuple[StepRecord, ...]


class GraphsReply(msgspec.Struct, frozen=True, tag=True):
    """The graph report."""

    query_id: int
    reply: dict[str, Any]


class LiveReply(msgspec.Struct, frozen=True, tag=True):
    """Counts of now and the newest step records."""

    query_id: int
    reply: LiveView


class ProfileReply(msgspec.Struct, frozen=True, tag=True):
    """A recording was begun or written, or could not be."""

    query_id: int
    reply: ErrorReport | None


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot go on: the last message of its process, which ends with FATAL_CODE."""

    error: ErrorReport


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The engine was told to end: the last message of its process, which ends with code 0."""


Command = Start | Add | Abort | AskStats | AskSteps | AskGraphs | AskLive | StartProfile | StopProfile | Shutdown
"""Frontend -> engine process."""
Event = Ready | Updates | Rejected | StatsReply | StepsReply | GraphsReply | LiveReply | ProfileReply | Fatal | Ended
"""Engine process -> frontend."""

_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    """Return the bytes of ``message``."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """Return the command in ``data``; raises msgspec.DecodeError where there is none."""
    return _command_decoder.decode(data)


def decode_event(data: bytes) -> Event:
    """Return the event in ``data``; raises msgspec.DecodeError where there is none."""
    return _event_decoder.decode(data)
