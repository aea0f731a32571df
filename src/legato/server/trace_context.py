"""Middleware: what a request asks for, and that what it does belongs to the trace that its headers name."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from legato.observability.request_spans import Operation, RequestSpans

OPERATIONS = {
    "/v1/completions": Operation.TEXT_COMPLETION,
    "/v1/chat/completions": Operation.CHAT,
    "/v1/responses": Operation.CHAT,
}
"""The routes that have outputs."""


class TraceContext:
    """Reads ``traceparent`` of every HTTP request that may have outputs."""

    def __init__(self, app: ASGIApp, *, spans: RequestSpans) -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        operation = OPERATIONS.get(scope["path"]) if scope["type"] == "http" else None
        if operation is None:
            await self._app(scope, receive, send)
            return
        with self._spans.request(operation, Headers(scope=scope)):
            await self._app(scope, receive, send)
