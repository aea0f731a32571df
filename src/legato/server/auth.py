"""The API key. Owns which paths are open without it, and a comparison that takes the same time for any wrong key."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from legato.server.errors import ApiError

OPEN_PATHS = frozenset({"/health"})


class RequireApiKey:
    """Middleware: lets through requests that bring the key."""

    def __init__(self, app: ASGIApp, *, key: str, open_paths: frozenset[str] = OPEN_PATHS) -> None:
        self._app = app
        self._open_paths = open_paths
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._brings_key(scope):
            await self._app(scope, receive, send)
            return
        message = "a valid API key is needed, as 'Authorization: Bearer KEY'"
        error = ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await error.response()(scope, receive, send)

    def _brings_key(self, scope: Scope) -> bool:
        given: bytes = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)
