"""Request bodies as their models. Owns the order: read, parse, judge what the model does not declare."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import ValidationError

from legato.server.errors import invalid_body
from legato.server.extras import check_extras
from legato.server.requests import Body, extras
from legato.server.state import ServerState, state_of

AnyBody = TypeVar("AnyBody", bound=Body)


def body_of(kind: type[AnyBody]) -> Callable[[Request, ServerState], Awaitable[AnyBody]]:
    """Return a dependency that reads, parses and checks a body of ``kind``; raises ApiError."""

    async def parse(request: Request, state: Annotated[ServerState, Depends(state_of)]) -> AnyBody:
        async with state.bodies.read(request) as data:
            try:
                body = kind.model_validate_json(data)
            except ValidationError as error:
                raise invalid_body(error) from None
        check_extras(extras(body))
        state.check_model(body.model)
        return body

    return parse
