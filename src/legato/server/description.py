"""How a route describes itself to the OpenAPI document: the body it takes, what it answers, which refusals it knows.

Types are referred to by their names; ``openapi.py`` resolves these.
"""

from typing import Any

import msgspec

from legato.server.errors import ErrorAnswer
from legato.server.requests import Body

REFERENCE = "#/components/schemas/{name}"
REFUSALS = {
    400: "The request is at fault; `param` names the field.",
    401: "The API key is missing or wrong.",
    403: "A page of another site asks, or the host that is asked for is not this server.",
    404: "There is no such model.",
    408: "The body did not come in time.",
    413: "The body is larger than the server takes.",
    431: "The headers are longer than the server takes.",
    503: "The server is full, or its engine has ended.",
}
BODY_REFUSALS = (400, 404, 408, 413, 503)
"""Of routes that take a body."""

Responses = dict[int | str, dict[str, Any]]


def takes(body: type[Body]) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route that takes ``body``."""
    return {"requestBody": {"required": True, "content": _json(_reference(body))}}


def answers(kind: type[msgspec.Struct] | None, *refusals: int, streams: str | None = None) -> Responses:
    """Return the ``responses`` of a route: ``kind``, or any object; ``streams``: what its events are, on demand."""
    content = _json({"type": "object"} if kind is None else _reference(kind))
    if streams is not None:
        content["text/event-stream"] = {"schema": {"description": streams}}  # no type: readers differ on of what
    return {200: {"description": "The answer.", "content": content}} | refused(*refusals)


def chunks(kind: type[msgspec.Struct]) -> str:
    """Return what the events of a stream of ``kind`` are."""
    return f"Server-sent events; the data of each is a {kind.__name__}, of the last one [DONE]."


def refused(*statuses: int) -> Responses:
    """Return the ``responses`` of refusals."""
    return {status: {"description": REFUSALS[status], "content": _json(_reference(ErrorAnswer))} for status in statuses}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(kind: type) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(name=kind.__name__)}
