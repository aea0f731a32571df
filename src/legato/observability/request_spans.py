"""OpenTelemetry spans of requests. Owns their names and attributes; the one place that imports OpenTelemetry.

A request is a span with its time in the queue, its prefill and its decoding as spans inside. Names and attributes are
those of OpenTelemetry's conventions for generative AI, and ``gen_ai.latency.*`` as other engines export it.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from legato.errors import ConfigError
from legato.observability.request_timing import RequestTiming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace.export import SpanExporter

TRACES_PATH = "/v1/traces"
EXPORT_TIMEOUT_S = 5
OPERATION = "legato.operation"
"""Under this key OpenTelemetry's context holds what the present request asks for."""


class Operation(StrEnum):
    """What a request asks for, as ``gen_ai.operation.name`` has it."""

    CHAT = "chat"
    TEXT_COMPLETION = "text_completion"


class RequestSpans:
    """Makes the spans of each output that ends, and hands them to an exporter in a thread of its own."""

    def __init__(self, exporter: "SpanExporter", *, model: str, version: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._model = model
        self._provider = TracerProvider(resource=Resource.create({"service.name": "legato"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("legato", version)

    def observe(self, timing: RequestTiming) -> None:
        """Take in an output that has ended, inside the :meth:`request` that it belongs to."""
        from opentelemetry import context, trace

        to_epoch_ns = time.time_ns() - time.monotonic_ns()

        def epoch_ns(seconds: float) -> int:
            return int(seconds * 1e9) + to_epoch_ns

        operation = context.get_value(OPERATION)
        span = self._tracer.start_span(
            f"{operation} {self._model}",
            kind=trace.SpanKind.SERVER,
            start_time=epoch_ns(timing.arrival),
            attributes=self._attributes(operation, timing),
        )
        inside = trace.set_span_in_context(span)
        for name, start, end in phases(timing):
            self._tracer.start_span(name, context=inside, start_time=epoch_ns(start)).end(epoch_ns(end))
        span.end(epoch_ns(timing.finished))

    def request(self, operation: Operation, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Inside the result, outputs are of ``operation``, in the trace that ``headers`` name (W3C ``traceparent``)."""
        return _inside(operation, headers)

    def flush(self) -> None:
        """Hand over what is waiting."""
        self._provider.force_flush(EXPORT_TIMEOUT_S * 1000)

    def shutdown(self) -> None:
        """Hand over what is waiting, and end; the process's own end does so too."""
        self._provider.shutdown()

    def _attributes(self, operation: object, timing: RequestTiming) -> dict[str, Any]:
        values = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "legato",
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.response.id": timing.request_id,
            "gen_ai.response.finish_reasons": [timing.finish_reason] if timing.finish_reason else None,
            "gen_ai.usage.input_tokens": timing.num_prompt_tokens,
            "gen_ai.usage.output_tokens": timing.num_output_tokens,
            "gen_ai.latency.time_in_queue": timing.queue_s,
            "gen_ai.latency.time_to_first_token": timing.time_to_first_token_s,
            "gen_ai.latency.e2e": timing.e2e_s,
        }
        values |= {f"gen_ai.latency.time_in_model_{name}": end - start for name, start, end in phases(timing)[1:]}
        return {name: value for name, value in values.items() if value is not None}


def phases(timing: RequestTiming) -> list[tuple[str, float, float]]:
    """Return (name, start, end) of what an output went through, in monotonic seconds; less where it ended early."""
    if timing.admitted is None:
        return []
    edges = [timing.arrival, timing.admitted]
    edges += [timing.finished] if timing.first_token is None else [timing.first_token, timing.finished]
    return list(zip(("queue", "prefill", "decode"), edges, edges[1:], strict=False))


def check_collector(endpoint: str) -> None:
    """Raise ConfigError where ``endpoint`` is no address, or the packages that speak to it are missing."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        details = {"requested": f"--otlp-endpoint {endpoint}", "options": "an address such as http://localhost:4318"}
        raise ConfigError("the collector's address is no HTTP address", details)
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401
    except ImportError as error:
        details = {
            "requested": f"--otlp-endpoint {endpoint}",
            "found": f"there is no module {error.name}",
            "options": "pip install 'legato[otel]' (opentelemetry-sdk, opentelemetry-exporter-otlp-proto-http)",
        }
        raise ConfigError("traces of requests need packages that are not installed", details) from error


def open_request_spans(endpoint: str, *, model: str, version: str) -> RequestSpans:
    """Return spans that go to a collector; raises ConfigError as :func:`check_collector` does.

    ``endpoint`` without a path gets that of the protocol, ``/v1/traces``.
    """
    check_collector(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    address = endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + TRACES_PATH
    return RequestSpans(OTLPSpanExporter(endpoint=address, timeout=EXPORT_TIMEOUT_S), model=model, version=version)


@contextmanager
def _inside(operation: Operation, headers: Mapping[str, str]) -> "Iterator[None]":
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    callers = TraceContextTextMapPropagator().extract(headers)
    token = context.attach(context.set_value(OPERATION, operation, callers))
    try:
        yield
    finally:
        context.detach(token)
