"""``/ui``: the live page and its stream of events. Owns the page's files and headers; knows nothing of what it shows.

The files are open without a key, as the page has to ask for it; the stream is not.
"""

import hashlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from legato import __version__
from legato.server.errors import SERVER, ApiError
from legato.server.live import MOST_VIEWERS
from legato.server.sse import EventStream
from legato.server.state import ServerState, state_of

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",  # kept, and asked for again by its hash: a new version shows at once
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """One file of the page."""

    content: bytes
    content_type: str
    tag: str
    """Its hash, as an entity tag."""


def _read_page() -> dict[str, PageFile]:
    found = {}
    for entry in files("legato.server").joinpath("ui").iterdir():
        content_type = CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if content_type is not None:
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[entry.name] = PageFile(content=content, content_type=content_type, tag=tag)
    return found


PAGE = _read_page()
OPEN_PATHS = frozenset({"/ui", "/ui/", *(f"/ui/{name}" for name in PAGE)})

router = APIRouter(include_in_schema=False)
State = Annotated[ServerState, Depends(state_of)]


@router.get("/ui")
async def without_slash() -> Response:
    """Lead to the page, whose files are named relative to it, so that it works behind any prefix."""
    return RedirectResponse("ui/", 307)


@router.get("/ui/events")
async def events(state: State) -> Response:
    """Stream what the engine does to one viewer."""
    if state.live.full:
        message = f"{MOST_VIEWERS} viewers are watching already"
        raise ApiError(503, message, kind=SERVER, code="too_many_viewers", headers={"Retry-After": "10"})
    return EventStream(state.live.watch(), AsyncExitStack())


@router.get("/ui/about")
async def about(state: State) -> Response:
    """Return what does not change while the server runs."""
    config = state.llm.config
    value = {
        "version": __version__,
        "model": state.model_name,
        "device": config.device,
        "dtype": config.dtype,
        "max_model_len": config.scheduler.max_model_len,
        "max_num_seqs": config.scheduler.max_num_seqs,
        "block_size": config.cache.block_size,
        "chat": state.llm.tokenizer is not None,
    }
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "no-store"})


@router.get("/ui/{name:path}")
async def page(request: Request, name: str = INDEX) -> Response:
    """Return one file of the page, or 304 to whoever has it."""
    found = PAGE.get(name or INDEX)
    if found is None:
        raise ApiError(404, f"the page has no file {name!r}", code="not_found")
    headers = HEADERS | {"ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers | {"Content-Type": found.content_type})
