"""How a server ends: drained, cut short, or by the death of its engine."""

import json
import os
import signal
import socket
import sys
import threading
import time
from subprocess import PIPE, Popen

import httpx
import pytest
from scripted_core import CRASH_TOKEN
from server_process import SUPPORT, eventually, running_server
from sse_reader import events

from legato.config.options import EngineOptions
from legato.config.server import ServerOptions
from legato.errors import ConfigError, ModelNotFoundError
from legato.server import serve


class Stream:
    """Reads a stream in a thread; ``started`` is set with its first event."""

    def __init__(self, server, *, max_tokens, **fields):
        self.started = threading.Event()
        self.events, self.response_error = [], None
        self._arguments = (f"{server.url}/v1/completions", {"prompt": [60], "max_tokens": max_tokens, "stream": True})
        self._arguments[1].update(fields)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        url, body = self._arguments
        with httpx.stream("POST", url, json=body, timeout=60) as response:
            for event in events(response):
                self.events.append(event)
                self.started.set()

    def finish(self):
        self._thread.join(60)
        return self.events


def text_of(received):
    return [json.loads(data)["choices"][0]["text"] for name, data in received if data != "[DONE]"]


def test_the_first_signal_drains_and_the_exit_code_is_zero(options):
    with running_server(options, step_s=0.02) as server:
        stream = Stream(server, max_tokens=100)
        whole = threading.Thread(target=lambda: answers.append(post(server, max_tokens=100)))
        answers = []
        whole.start()
        assert eventually(lambda: num_running(server) == 2)
        server.signal(signal.SIGTERM)
        assert eventually(lambda: refuses_connections(server))
        assert server.process.poll() is None, "the requests that run are not finished yet"
        assert server.exit_code() == 0
        assert stream.finish()[-1] == ("message", "[DONE]")
        whole.join()
        assert answers[0].json()["usage"]["completion_tokens"] == 100


def num_running(server):
    lines = httpx.get(f"{server.url}/metrics", timeout=20).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("legato:num_requests_running "))


def refuses_connections(server):
    try:
        with socket.create_connection((httpx.URL(server.url).host, httpx.URL(server.url).port), timeout=20):
            return False
    except ConnectionRefusedError:
        return True


def post(server, **body):
    return httpx.post(f"{server.url}/v1/completions", json={"prompt": [60]} | body, timeout=60)


def test_a_drain_is_cut_after_its_timeout_with_an_error_event(options):
    with running_server(options, step_s=0.05, drain_timeout_s=0.3) as server:
        stream = Stream(server, max_tokens=190)
        assert stream.started.wait(30)
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
        name, data = stream.finish()[-1]
        assert name == "error"
        assert json.loads(data)["error"]["code"] == "engine_dead"


def test_a_second_signal_ends_at_once(options):
    with running_server(options, step_s=0.05) as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=endless(), timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            engine = server.engine_pid()
            server.signal(signal.SIGTERM)
            assert eventually(lambda: server.has_logged("draining"))  # two at once would be one
            server.signal(signal.SIGTERM)
            assert server.exit_code() == 1
        assert not server.has_logged("the drain timeout is over")
        assert eventually(lambda: not exists(engine))


def endless():
    return {"prompt": [60], "max_tokens": 190, "stream": True}


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_engine_ends_every_request_and_then_the_server(options):
    with running_server(options, step_s=0.1, dead_engine_grace_s=60) as server:
        stream, answers = Stream(server, max_tokens=190), []
        whole = threading.Thread(target=lambda: answers.append(post(server, max_tokens=190)))
        whole.start()
        assert eventually(lambda: num_running(server) == 2)
        assert stream.started.wait(60)  # before its first token it would be refused like any other request
        start = time.monotonic()
        os.kill(server.engine_pid(), signal.SIGKILL)
        name, data = stream.finish()[-1]
        whole.join()
        assert time.monotonic() - start < 5, "by themselves the requests would run for twenty seconds"
        assert name == "error"
        assert "SIGKILL" in json.loads(data)["error"]["message"]
        health = httpx.get(f"{server.url}/health", timeout=60)
        for response in (*answers, health, post(server, max_tokens=1)):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "engine_dead"
        assert httpx.get(f"{server.url}/metrics", timeout=60).status_code == 200
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 1


def test_an_engine_that_fails_in_a_step_is_reported_with_its_error(options):
    with running_server(options, dead_engine_grace_s=0.1, tracebacks=True) as server:
        crash = httpx.post(f"{server.url}/v1/completions", json={"prompt": [CRASH_TOKEN]}, timeout=60)
        assert crash.status_code == 503
        assert "met the crash token" in crash.json()["error"]["message"]
        assert server.exit_code() == 1


def test_a_taken_port_and_a_missing_model_are_errors_before_anything_is_served():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            serve(EngineOptions(model="/nowhere/at/all"), ServerOptions(port=port))
    with pytest.raises(ModelNotFoundError):
        serve(EngineOptions(model="/nowhere/at/all"), ServerOptions(port=0))


def test_a_signal_while_the_engine_is_being_built_ends_the_server(options):
    script = (
        "import sys; from legato.config.options import EngineOptions; from legato.config.server import ServerOptions;"
        "from legato.server import serve;"
        f"sys.exit(serve(EngineOptions(model={options.model!r}), ServerOptions(port=0), factory='slow_core:build'))"
    )
    environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
    with Popen([sys.executable, "-c", script], env=environment, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        while "building slowly" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
