"""Request bodies as their models. Owns the order: read, parse, judge what the model does not declare."""

from typing import TypeVar

from fastapi import Request
from pydantic import ValidationError

from legato.server.errors import invalid_body
from legato.server.extras import check_extras
from legato.server.requests import Body, extras
from legato.server.state import ServerState

AnyBody = TypeVar("AnyBody", bound=Body)


async def read_body(request: Request, state: ServerState, kind: type[AnyBody]) -> AnyBody:
    """Read, parse and check a body of ``kind``; raises ApiError."""
    async with state.bodies.read(request) as data:
        try:
            body = kind.model_validate_json(data)
        except ValidationError as error:
            raise invalid_body(error) from None
    check_extras(extras(body))
    state.check_model(body.model)
    return body
