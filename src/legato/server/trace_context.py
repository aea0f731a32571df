"""Middleware: what a request does belongs to the trace that its headers name."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from legato.observability.request_spans import RequestSpans


class TraceContext:
    """Reads ``traceparent`` of every HTTP request."""

    def __init__(self, app: ASGIApp, *, spans: RequestSpans) -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._spans.caller(Headers(scope=scope)):
            await self._app(scope, receive, send)
