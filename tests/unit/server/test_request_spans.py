"""Traces of requests: what a collector is told, whose trace it belongs to, and what is said without the packages."""

import asyncio
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.engine.async_engine import AsyncLLM
from legato.errors import ConfigError
from legato.observability.request_spans import Operation, check_collector, open_request_spans, phases
from legato.observability.request_timing import RequestTiming
from legato.server import lifecycle
from legato.server.app import create_app
from legato.server.batch.lines import URLS
from legato.server.trace_context import OPERATIONS

TIMING = RequestTiming(
    request_id="7-0",
    index=0,
    num_prompt_tokens=5,
    num_output_tokens=3,
    arrival=100.0,
    admitted=100.25,
    first_token=100.75,
    finished=102.0,
    inter_token_s=(0.5, 0.75),
    finish_reason="stop",
)
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector():
    """A collector that keeps the spans it is sent; yields (address, spans by name)."""
    pytest.importorskip("opentelemetry.sdk.trace")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(_inflated(body, self.headers)).resource_spans:
                for scope in resource.scope_spans:
                    spans.update({span.name: span for span in scope.spans})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


def _inflated(body, headers):
    import gzip

    return gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_an_output_is_a_span_with_its_phases_inside(collector):
    address, told = collector
    spans = open_request_spans(address, model="tiny", version="1")
    with spans.request(Operation.CHAT, {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}):
        spans.observe(TIMING)
    spans.shutdown()
    request = told["chat tiny"]
    assert set(told) == {"chat tiny", "queue", "prefill", "decode"}
    assert request.trace_id.hex() == TRACE_ID and request.parent_span_id.hex() == PARENT_ID
    seconds = {name: (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for name, span in told.items()}
    assert seconds == pytest.approx({"chat tiny": 2.0, "queue": 0.25, "prefill": 0.5, "decode": 1.25}, abs=1e-5)
    assert all(told[name].parent_span_id == request.span_id for name in ("queue", "prefill", "decode"))
    known = attributes(request)
    assert [value.string_value for value in known.pop("gen_ai.response.finish_reasons").values] == ["stop"]
    assert known == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "legato",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.response.id": "7-0",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_to_first_token": 0.75,
        "gen_ai.latency.time_in_model_prefill": 0.5,
        "gen_ai.latency.time_in_model_decode": 1.25,
        "gen_ai.latency.e2e": 2.0,
    }


def test_a_served_request_is_told_of_as_part_of_its_callers_trace(collector, tmp_path):
    address, told = collector
    engine = EngineOptions(
        model=str(write_tiny_model(tmp_path)), served_model_name="tiny", device="cpu", enforce_eager=True
    )

    async def serve():
        llm = await AsyncLLM.start(engine)
        try:
            app = create_app(llm, ServerOptions(otlp_endpoint=address))
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://legato") as client:
                headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
                body = {"prompt": [5, 6], "max_tokens": 3, "ignore_eos": True}
                answer = await client.post("/v1/completions", json=body, headers=headers)
                assert answer.status_code == 200
                items = await client.post("/v1/responses", json={"input": "a", "max_output_tokens": 2})
                assert items.status_code == 200
            [spans] = [layer.kwargs["spans"] for layer in app.user_middleware if "spans" in layer.kwargs]
            await asyncio.to_thread(spans.shutdown)
        finally:
            await llm.shutdown()

    asyncio.run(asyncio.wait_for(serve(), 240))
    request = told["text_completion tiny"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert attributes(request)["gen_ai.usage.output_tokens"] == 3
    assert attributes(request)["gen_ai.latency.time_in_queue"] >= 0
    assert {"queue", "prefill", "decode", "chat tiny"} < set(told)


def test_the_operation_of_every_route_with_outputs_is_known():
    assert OPERATIONS.keys() == set(URLS)


def test_phases_meet_and_make_up_the_whole():
    assert phases(TIMING) == [("queue", 100.0, 100.25), ("prefill", 100.25, 100.75), ("decode", 100.75, 102.0)]


def test_without_the_packages_the_server_says_what_to_install_before_it_loads_a_model(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(ConfigError, match=r"legato\[otel\]"):
        lifecycle.serve(EngineOptions(model="none"), ServerOptions(otlp_endpoint="http://localhost:4318"))


@pytest.mark.parametrize("address", ["localhost:4318", "ftp://a", ""])
def test_what_is_no_http_address_is_refused(address):
    with pytest.raises(ConfigError, match="no HTTP address"):
        check_collector(address)
