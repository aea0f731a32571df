"""Requests that a browser sends on behalf of another site's page. Owns how they are told, and that they are refused.

No route allows other origins (CORS), so such a page reads no answer. It could still make the engine work, and start
profiles: a POST of text needs nobody's leave. Browsers say where a request comes from, other clients say nothing.
"""

import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from legato.server.errors import ApiError
from legato.server.hosts import includes, name_and_port

OTHER_SITES = frozenset({"cross-site", "same-site"})
"""Values of ``Sec-Fetch-Site`` (W3C Fetch Metadata) for pages that this server did not send."""
READING = frozenset({"GET", "HEAD"})
"""What a link may do."""
NAMELESS = "null"
"""The ``Origin`` of a page that hides its own, or has none."""
PORTS = {"http": "80", "https": "443"}
"""What an origin's port is where it names none."""
_ORIGIN = re.compile(r"(https?)://(.*)", re.IGNORECASE | re.DOTALL)
_MOST_SHOWN = 100


class RefuseCrossSite:
    """Middleware: lets through what no page of another site has asked for. Pages of ``hosts`` are the server's too."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] in READING or (reason := self._foreign(scope)) is None:
            await self._app(scope, receive, send)
            return
        error = ApiError(403, f"pages of other sites may not use this server{reason}", code="cross_site")
        await error.response()(scope, receive, send)

    def _foreign(self, scope: Scope) -> str | None:
        """Return what is to be said of a request of another site's page; None: it is not of one.

        ``Sec-Fetch-Site`` is the browser's own judgement, whatever proxies have made of ``Host``. It goes only to
        addresses that browsers trust (TLS, localhost); ``Origin`` goes to all.
        """
        if sites := _values(scope, b"sec-fetch-site"):
            return None if OTHER_SITES.isdisjoint(sites) else ""
        # A page cannot set the second one: it would have to ask for leave first.
        asked = [*_values(scope, b"host"), *_values(scope, b"x-forwarded-host")]
        others = (origin for origin in _values(scope, b"origin") if not self._is_own(origin, asked))
        if (other := next(others, None)) is None:
            return None
        return f": this one comes from {other[:_MOST_SHOWN]!r}; --allowed-hosts NAME makes pages of NAME its own"

    def _is_own(self, origin: str, asked: Iterable[str]) -> bool:
        """Return whether a page of ``origin`` has come from a host that was ``asked`` for, or is of one that was given.

        The scheme may be another one, behind a proxy that speaks TLS, and a proxy may have left out the port. Schemes
        besides those of the web are applications' own, which act for their user.
        """
        parts = _ORIGIN.fullmatch(origin)
        if parts is None:
            return origin != NAMELESS
        page = name_and_port(parts[2])
        if page is None:
            return False
        name, port = page[0], page[1] or PORTS[parts[1].lower()]
        return includes(self._hosts, name) or any(name_and_port(host) in ((name, port), (name, "")) for host in asked)


def _values(scope: Scope, header: bytes) -> list[str]:
    """Return what is said in ``header``, each part of a list on its own."""
    said = (value.decode("latin-1") for name, value in scope["headers"] if name == header)
    return [part.strip() for value in said for part in value.split(",")]
