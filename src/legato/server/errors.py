"""Errors as clients see them: OpenAI's shape and the status. Owns the mapping from every exception to that shape."""

from collections.abc import Mapping

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from legato.errors import EngineDeadError, LegatoError, QueueFullError, RequestError

RETRY_AFTER_S = 1
"""What a refused client is told to wait: a slot becomes free when any request ends."""
INVALID = "invalid_request_error"
SERVER = "server_error"
_MOST_PROBLEMS = 5


class ErrorBody(msgspec.Struct, frozen=True):
    """The inner object of an error response."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """An error response."""

    error: ErrorBody


class ApiError(Exception):
    """A refused or failed HTTP request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(message, kind, param, code)
        self.headers = headers

    def json(self) -> bytes:
        """Return the response body."""
        return msgspec.json.encode(ErrorAnswer(self.body))

    def response(self) -> Response:
        """Return the HTTP response."""
        return Response(self.json(), self.status, self.headers, "application/json")


def api_error(error: Exception) -> ApiError:
    """Return what clients are told of ``error``; of an unforeseen one no more than that it happened."""
    match error:
        case ApiError():
            return error
        case QueueFullError():
            return overloaded(str(error))
        case RequestError():
            return ApiError(400, str(error), param=error.param)
        case EngineDeadError():
            return ApiError(503, str(error), kind=SERVER, code="engine_dead")
        case LegatoError():
            return ApiError(500, str(error), kind=SERVER)
        case RequestValidationError():
            problem = error.errors()[0]
            return ApiError(400, f"{problem['loc'][-1]}: {problem['msg']}", param=str(problem["loc"][-1]))
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case _:
            return ApiError(500, "the server failed on this request", kind=SERVER, code="internal_error")


def overloaded(message: str, more_headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the refusal of a server that holds as much as it may."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} | dict(more_headers or {})
    return ApiError(503, message, kind=SERVER, code="queue_full", headers=headers)


def invalid_body(error: ValidationError) -> ApiError:
    """Return the refusal of a body that does not fit its model, naming each field at fault."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {problems[0]['msg']}", code="invalid_json")
    by_field: dict[str, list[str]] = {}
    for problem in problems:
        by_field.setdefault(_field(problem["loc"]), []).append(problem["msg"])
    lines = [
        f"{field}: {' | '.join(dict.fromkeys(texts))}" if field else texts[0]
        for field, texts in list(by_field.items())[:_MOST_PROBLEMS]
    ]
    return ApiError(400, "; ".join(lines), param=next(iter(by_field)) or None)


def _field(location: tuple[int | str, ...]) -> str:
    # What follows the field's name are list indices and the members of a union, which mean nothing to a client.
    return str(location[0]) if location else ""


async def handle(_: Request, error: Exception) -> Response:
    """Answer ``error``: the exception handler of the application."""
    return api_error(error).response()
