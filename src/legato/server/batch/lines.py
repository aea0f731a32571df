"""One line of a batch file and one row of its results. Owns both forms, in OpenAI's names; knows no file.

A row's ``id`` is its line's number, so that a second run knows what the first one has answered.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from legato.errors import ConfigError

URLS = ("/v1/chat/completions", "/v1/responses", "/v1/completions")
MOST_LINE_BYTES = 64 * 1024 * 1024


class BatchError(msgspec.Struct, frozen=True):
    """Why a line has no response at all."""

    code: str
    message: str


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one line, as a server would have given it."""

    status_code: int
    request_id: str
    body: dict[str, Any]


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the results."""

    id: str
    custom_id: str | None
    response: BatchResponse | None = None
    error: BatchError | None = None


class BatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request, or what is wrong with it."""

    id: str
    custom_id: str | None = None
    url: str = ""
    body: bytes = b""
    """JSON."""
    error: BatchError | None = None


def read_lines(path: Path) -> Iterator[BatchLine]:
    """Yield the requests of a batch file; blank lines count, but ask for nothing. Raises ConfigError."""
    seen: set[str] = set()
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _line(f"batch_req_{number}", text, seen)
    except OSError as error:
        raise ConfigError("the batch file cannot be read", {"requested": str(path), "found": error.strerror}) from error


def _line(row_id: str, text: bytes, seen: set[str]) -> BatchLine:
    if len(text) > MOST_LINE_BYTES:
        return _refused(row_id, None, "line_too_long", f"the line is longer than {MOST_LINE_BYTES} bytes")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _refused(row_id, None, "invalid_json_line", f"the line is no JSON: {error}")
    custom_id = value.get("custom_id") if isinstance(value, dict) else None
    if not isinstance(custom_id, str) or not custom_id:
        return _refused(row_id, None, "invalid_custom_id", "the line has no custom_id, a string of its own")
    if custom_id in seen:
        return _refused(row_id, custom_id, "duplicate_custom_id", f"an earlier line has custom_id {custom_id!r} too")
    seen.add(custom_id)
    problem = _problem(value)
    if problem is not None:
        return _refused(row_id, custom_id, *problem)
    return BatchLine(id=row_id, custom_id=custom_id, url=value["url"], body=msgspec.json.encode(value["body"]))


def _problem(value: dict[str, Any]) -> tuple[str, str] | None:
    """Return code and message of what keeps a line from being asked; None: nothing does."""
    if value.get("method") != "POST":
        return "invalid_method", f"method must be 'POST', not {value.get('method')!r}"
    if value.get("url") not in URLS:
        return "invalid_url", f"url must be one of {', '.join(URLS)}, not {value.get('url')!r}"
    body = value.get("body")
    if not isinstance(body, dict):
        return "invalid_body", "body must be an object"
    if body.get("stream"):
        return "invalid_body", "body: a batch has no streams; leave stream out"
    return None


def _refused(row_id: str, custom_id: str | None, code: str, message: str) -> BatchLine:
    return BatchLine(id=row_id, custom_id=custom_id, error=BatchError(code, message))
