"""What the routes share: the engine, the options, the metrics, the slots. One per application."""

import time
from dataclasses import dataclass, field
from typing import cast

from fastapi import Request

from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.observability.metrics import Metrics
from legato.server.admission import Admission
from legato.server.body_reader import BodyReader
from legato.server.errors import ApiError
from legato.server.live import Broadcaster
from legato.server.parsers.registry import MessageStyle
from legato.server.token_text import TokenText


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One running server."""

    llm: AsyncLLM
    options: ServerOptions
    admission: Admission
    bodies: BodyReader
    speller: TokenText
    metrics: Metrics
    live: Broadcaster
    style: MessageStyle
    """How the model writes its messages."""
    started: int = field(default_factory=lambda: int(time.time()))
    """Seconds since the epoch."""

    @property
    def model_name(self) -> str:
        """The model's name in the HTTP interface."""
        return self.llm.config.served_model_name

    def check_model(self, name: str | None) -> None:
        """Raise ApiError for a model other than the one that is served."""
        if name is not None and name != self.model_name:
            message = f"the model {name!r} does not exist; {self.model_name!r} is served"
            raise ApiError(404, message, param="model", code="model_not_found")


async def state_of(request: Request) -> ServerState:
    """Return the state of the application that ``request`` came to: a dependency of routes; those with a body call it.

    A coroutine, as a dependency that is a plain function would be run in a thread for every request.
    """
    return cast(ServerState, request.app.state.legato)
