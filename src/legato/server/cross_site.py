"""Requests that a browser sends on behalf of another site's page. Owns how they are told, and that they are refused.

No route allows other origins (CORS), so such a page reads no answer. It could still make the engine work, and start
profiles: a POST of text needs nobody's leave. Browsers say where a request comes from, other clients say nothing.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from legato.server.errors import ApiError

OTHER_SITES = frozenset({b"cross-site", b"same-site"})
"""Values of ``Sec-Fetch-Site`` (W3C Fetch Metadata) for pages that this server did not send."""
READING = frozenset({"GET", "HEAD"})
"""What a link may do."""


class RefuseCrossSite:
    """Middleware: lets through what no page of another site has asked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] in READING or not _of_other_site(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(403, "pages of other sites may not use this server", code="cross_site")
        await error.response()(scope, receive, send)


def _of_other_site(scope: Scope) -> bool:
    return any(name == b"sec-fetch-site" and value in OTHER_SITES for name, value in scope["headers"])
