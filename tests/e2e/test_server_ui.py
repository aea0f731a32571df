"""The live page over HTTP: its files, its key, and its stream. What a browser makes of them: test_server_ui_browser."""

import json
import os
import signal

import httpx
import pytest
from server_process import CLIENT, KEY, running_server
from sse_reader import events

AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


def stats(response: httpx.Response):
    for name, data in events(response):
        if name in ("snapshot", "tick"):
            yield name, json.loads(data)


def test_the_page_comes_with_its_type_its_policy_and_its_hash(server):
    page = CLIENT.get(f"{server.url}/ui", follow_redirects=True)
    assert page.url.path == "/ui/"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    types = {"style.css": "text/css", "main.js": "text/javascript", "icon.svg": "image/svg+xml"}
    for name, expected in types.items():
        assert CLIENT.get(f"{server.url}/ui/{name}").headers["content-type"].startswith(expected)
    again = CLIENT.get(f"{server.url}/ui/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "%2e%2e/app.py", "__init__.py"])
def test_nothing_but_the_page_is_served(server, name):
    assert CLIENT.get(f"{server.url}/ui/{name}").status_code == 404


def test_a_viewer_sees_the_steps_of_requests(server):
    body = {"prompt": [5, 6, 7], "max_tokens": 30, "ignore_eos": True}
    with CLIENT.stream("GET", f"{server.url}/ui/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = stats(response)
        name, whole = next(seen)
        assert name == "snapshot"
        assert CLIENT.post(f"{server.url}/v1/completions", json=body).status_code == 200
        steps, generated = [], whole["stats"]["generation_tokens"]
        while len(steps) < 30:
            name, tick = next(seen)
            assert name == "tick"
            steps += tick["steps"]
        assert tick["stats"]["generation_tokens"] == generated + 30
        assert steps[0][1:6] == ["target", "full", "full", "sampler_variant", "full 16"]
        assert [row[0] for row in steps] == list(range(steps[0][0], steps[0][0] + len(steps)))


def test_the_page_is_open_and_its_stream_needs_the_key(narrow_server):
    assert CLIENT.get(f"{narrow_server.url}/ui/").status_code == 200
    for name in ("events", "about"):
        assert CLIENT.get(f"{narrow_server.url}/ui/{name}").status_code == 401
    assert CLIENT.get(f"{narrow_server.url}/ui/about", headers=AUTHORIZED).json()["model"] == "tiny"
    with CLIENT.stream("GET", f"{narrow_server.url}/ui/events", headers=AUTHORIZED) as response:
        assert next(events(response))[0] == "graphs"


def test_without_the_page_there_is_neither_file_nor_stream(options):
    with running_server(options, ui=False) as server:
        assert [CLIENT.get(f"{server.url}/ui{path}").status_code for path in ("", "/", "/events")] == [404] * 3


def test_a_viewer_does_not_hold_up_the_end(options):
    with running_server(options) as server, CLIENT.stream("GET", f"{server.url}/ui/events") as response:
        seen = events(response)
        next(seen)
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
    assert not server.has_logged("the drain timeout is over")


def test_a_viewer_is_told_that_the_engine_has_died(options):
    with (
        running_server(options, dead_engine_grace_s=0.2) as server,
        CLIENT.stream("GET", f"{server.url}/ui/events") as response,
    ):
        seen = events(response)
        next(seen)
        os.kill(server.engine_pid(), signal.SIGKILL)
        assert [json.loads(data)["error"] for name, data in seen if name == "ended"] != []
        assert server.exit_code() == 1
