"""The application: routes, error handlers and middleware around a running engine. Knows no socket and no signal."""

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from legato import __version__
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.errors import LegatoError
from legato.observability.metrics import Metrics
from legato.observability.request_spans import open_request_spans
from legato.observability.request_timing import RequestTiming
from legato.server import chat, completions, openapi, operations, profiling, tokenizing, ui_routes
from legato.server.admission import Admission
from legato.server.auth import OPEN_PATHS, RequireApiKey
from legato.server.body_reader import BodyReader
from legato.server.cross_site import RefuseCrossSite
from legato.server.errors import ApiError, handle
from legato.server.hosts import given_hosts
from legato.server.live import Broadcaster
from legato.server.parsers.registry import MessageStyle
from legato.server.responses_api import route as responses_route
from legato.server.state import ServerState
from legato.server.token_text import TokenText
from legato.server.trace_context import TraceContext

CLIENT_CLOSED_REQUEST = 499


def create_app(llm: AsyncLLM, options: ServerOptions) -> FastAPI:
    """Return the application that serves ``llm``, which stays the caller's to shut down.

    Raises ConfigError where traces of requests are asked for that cannot be had.
    """
    app = FastAPI(title="Legato", version=__version__, openapi_url=None)
    metrics = Metrics()
    llm.on_timing = metrics.observe
    app.state.legato = ServerState(
        llm=llm,
        options=options,
        admission=Admission(llm.config.scheduler.max_queue),
        bodies=BodyReader(options.max_body_bytes),
        speller=TokenText(llm.tokenizer),
        metrics=metrics,
        live=Broadcaster(llm),
        style=_message_style(llm, options),
    )
    for module in (completions, chat, responses_route, tokenizing, operations, openapi):
        app.include_router(module.router)
    if options.ui:
        app.include_router(ui_routes.router)
    if options.profile_dir is not None:
        app.include_router(profiling.router)
    for kind in (ApiError, LegatoError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(ClientDisconnect, _nobody_listens)
    if options.otlp_endpoint is not None:
        spans = open_request_spans(options.otlp_endpoint, model=llm.config.served_model_name, version=__version__)
        llm.on_timing = _both(metrics.observe, spans.observe)
        app.add_middleware(TraceContext, spans=spans)
    if options.api_key is not None:
        open_paths = OPEN_PATHS | ui_routes.OPEN_PATHS if options.ui else OPEN_PATHS
        app.add_middleware(RequireApiKey, key=options.api_key, open_paths=open_paths)
    app.add_middleware(RefuseCrossSite, hosts=given_hosts(options))
    return app


def _both(
    first: Callable[[RequestTiming], None], second: Callable[[RequestTiming], None]
) -> Callable[[RequestTiming], None]:
    def observe(timing: RequestTiming) -> None:
        first(timing)
        second(timing)

    return observe


def _message_style(llm: AsyncLLM, options: ServerOptions) -> MessageStyle:
    template = None if llm.tokenizer is None else llm.tokenizer.chat_template
    return MessageStyle.of(
        tool_calls=options.tool_call_parser,
        reasoning=options.reasoning_parser,
        template="" if template is None else template.text,
    )


async def _nobody_listens(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
