"""``GET /openapi.json``: what the server says of its own interface. Owns the document and the types that it tells.

Names and types are those of the classes that read bodies and write answers, so that the document cannot tell of others.
Ranges are not among them: they depend on the model, and whoever leaves them is refused with the range.
"""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.responses import Response
from starlette.routing import BaseRoute

from legato import __version__
from legato.server.auth import OPEN_PATHS
from legato.server.description import REFERENCE, refused
from legato.server.errors import ErrorAnswer
from legato.server.extras import NEUTRAL, NO_BEARING
from legato.server.operations import Health, Model, ModelList, Steps, Version
from legato.server.profiling import Profile
from legato.server.requests import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from legato.server.responses import Chat, ChatChunk, Completion
from legato.server.responses_api.answer import Responses
from legato.server.responses_api.body import ResponsesBody
from legato.server.responses_api.events import ResponsesEvent
from legato.server.state import ServerState, state_of
from legato.server.tokenizing import Detokenized, Tokenized

BODIES: tuple[type[Body], ...] = (CompletionBody, ChatBody, ResponsesBody, TokenizeBody, DetokenizeBody)
ANSWERS: tuple[type[msgspec.Struct], ...] = (
    Completion,
    Chat,
    ChatChunk,
    Responses,
    Tokenized,
    Detokenized,
    Health,
    Version,
    Model,
    ModelList,
    Steps,
    Profile,
    ErrorAnswer,
)

router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, state: Annotated[ServerState, Depends(state_of)]) -> Response:
    """Return the description of this server."""
    described = document(request.app.routes, keyed=state.options.api_key is not None)
    return Response(msgspec.json.encode(described), media_type="application/json")


def document(routes: list[BaseRoute], *, keyed: bool) -> dict[str, Any]:
    """Return the OpenAPI document of ``routes``; ``keyed``: they are open to those who bring a key."""
    document = get_openapi(title="Legato", version=__version__, routes=routes)
    components: dict[str, Any] = {"schemas": _types()}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own; here it is a 400
            locked = keyed and path not in OPEN_PATHS
            operation["security"] = [{"key": []}] if locked else []
            refusals = refused(401, 403, 431) if locked else refused(403, 431)
            operation["responses"] |= {str(status): told for status, told in refusals.items()}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document | {"components": components}


def _types() -> dict[str, Any]:
    """Return the JSON schema of every type, by its name."""
    [*_, event], answers = msgspec.json.schema_components((*ANSWERS, ResponsesEvent), ref_template=REFERENCE)
    template = REFERENCE.format(name="{model}")
    _, bodies = models_json_schema([(body, "validation") for body in BODIES], ref_template=template)
    types = {**answers, "ResponsesEvent": event, **bodies["$defs"]}
    return types | {body.__name__: _closed(types[body.__name__]) for body in BODIES}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a body with the fields that are accepted without effect, and without any others."""
    without_effect: dict[str, Any] = {name: {} for name in sorted(NO_BEARING)}
    without_effect |= {name: {"enum": [None, *values]} for name, values in NEUTRAL.items()}
    return schema | {"properties": without_effect | schema["properties"], "additionalProperties": False}
