"""Whatever a request holds, the answer is one that the server describes, or a refusal, and the server lives on."""

import json
import time

import httpx
import jsonschema_rs
import pytest
from hypothesis import given, settings
from server_process import REAL, running_server
from wild_requests import BODIES, ODD_REQUESTS

from legato.config.options import EngineOptions

HANG_S = 30
ANSWERS = {
    "/v1/completions": "Completion",
    "/v1/chat/completions": "Chat",
    "/v1/responses": "Responses",
    "/tokenize": "Tokenized",
}
CHUNKS = {"/v1/completions": "Completion", "/v1/chat/completions": "ChatChunk"}
REFUSALS = {400, 404, 405, 408, 413, 431}


@pytest.fixture(scope="module")
def connection(tiny_model):
    options = EngineOptions(model=str(tiny_model), served_model_name="tiny", device="cpu", enforce_eager=True)
    with (
        running_server(
            options, factory=REAL, max_body_bytes=1_000_000, access_log=False, tool_call_parser="hermes"
        ) as server,
        httpx.Client(base_url=server.url, timeout=HANG_S) as client,
    ):
        yield client
        assert client.get("/health").status_code == 200
        assert "requests_running 0" in client.get("/metrics").text


@pytest.fixture(scope="module")
def described(connection):
    """Validators of the types that the server describes."""
    document = connection.get("/openapi.json").json()
    return {
        name: jsonschema_rs.validator_for(
            {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        )
        for name in document["components"]["schemas"]
    }


def fuzz(pytestconfig, examples, strategy, check):
    """Check some requests, the same each time; with --fuzz-seconds, new ones until the time is over."""
    seconds = pytestconfig.getoption("--fuzz-seconds")
    fixed = settings(max_examples=examples, deadline=None, database=None, derandomize=seconds is None)
    run = fixed(given(strategy)(check))
    end = time.monotonic() + (seconds or 0)
    run()
    while time.monotonic() < end:
        run()


def refused(response, described):
    assert response.status_code in REFUSALS, response.text
    described["ErrorAnswer"].validate(response.json())


def told_by_events(text, chunk):
    """Hold a stream to its description: chunks to the end, or an error that the request has brought about."""
    *events, rest = text.split("\n\n")
    last = events.pop()
    assert rest == ""
    for event in events:
        chunk.validate(json.loads(event.removeprefix("data: ")))
    assert last == "data: [DONE]" or '"invalid_request_error"' in last.removeprefix("event: error\n"), last


def told_by_named_events(text, event):
    """The same of a stream whose events have names, and which ends with its answer."""
    *events, rest = text.split("\n\n")
    assert rest == ""
    for one in events:
        name, data = one.split("\n")
        told = json.loads(data.removeprefix("data: "))
        event.validate(told)
        assert name == f"event: {told['type']}"
    assert told["type"] in ("response.completed", "response.incomplete") or (
        told["type"] == "response.failed" and told["response"]["error"]["code"] == "invalid_prompt"
    ), told


def test_no_body_makes_the_server_fail(connection, described, pytestconfig):
    def check(request):
        path, body = request
        response = connection.post(path, content=json.dumps(body))  # httpx would refuse to encode half a character
        if response.status_code != 200:
            refused(response, described)
        elif not response.headers["content-type"].startswith("text/event-stream"):
            described[ANSWERS.get(path, "Detokenized")].validate(response.json())
        elif path == "/v1/responses":
            told_by_named_events(response.text, described["ResponsesEvent"])
        else:
            told_by_events(response.text, described[CHUNKS[path]])

    fuzz(pytestconfig, 400, BODIES, check)


def test_no_bytes_and_no_headers_make_the_server_fail(connection, described, pytestconfig):
    def check(request):
        method, path, content, headers = request
        response = connection.request(method, path, content=content, headers=headers)
        if response.status_code >= 300 and method != "HEAD":
            refused(response, described)
        assert response.status_code < 500

    fuzz(pytestconfig, 150, ODD_REQUESTS, check)
