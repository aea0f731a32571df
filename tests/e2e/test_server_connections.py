"""Clients that keep the server waiting, send without end, or come in numbers: dropped, told why, and counted."""

import json
import re
import select
import socket
import time

import httpx
import pytest
from scripted_core import MAX_MODEL_LEN
from server_process import eventually, running_server

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
TIMEOUT_S = 0.8
BODY_TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def strict_server(options):
    """A server with little patience and few places."""
    limits = {"client_timeout_s": TIMEOUT_S, "body_timeout_s": BODY_TIMEOUT_S, "max_connections": 20}
    with running_server(options, **limits) as server:
        yield server


@pytest.fixture
def connect(strict_server):
    sockets = []

    def connect(receive_bytes=None):
        url = httpx.URL(strict_server.url)
        connection = socket.socket()
        sockets.append(connection)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(60)
        connection.connect((url.host, url.port))
        return connection

    yield connect
    for connection in sockets:
        connection.close()


def dropped(server, reason):
    found = re.search(
        rf'connections_dropped_total{{reason="{reason}"}} (\S+)', httpx.get(f"{server.url}/metrics", timeout=60).text
    )
    return float(found[1]) if found else 0.0


def everything(connection):
    """Read to the end of a connection, however it ends."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def refusal(received):
    """Return status and code of a response whose shape has been checked."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert f"content-length: {len(body)}".encode() in head
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        GET,
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" + b'{"prompt": ',
        GET + b"\r\n" + GET,
    ],
    ids=["nothing", "an empty line", "half a head", "half a body", "half a second head"],
)
def test_a_request_that_does_not_come_is_given_up(strict_server, connect, sent):
    before = dropped(strict_server, "slow_request")
    connection = connect()
    began = time.monotonic()
    connection.sendall(sent)
    received = everything(connection)
    assert TIMEOUT_S <= time.monotonic() - began < 30
    if b"200 OK" in received:
        received = received[received.index(b"HTTP/1.1 408") :]
    assert refusal(received) == (408, "slow_request")
    assert dropped(strict_server, "slow_request") == before + 1


def test_empty_lines_do_not_keep_an_idle_connection_for_ever(connect):
    connection = connect()
    connection.sendall(GET + b"\r\n")
    assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
    connection.sendall(b"\r\n")
    assert refusal(everything(connection)) == (408, "slow_request")


def test_a_client_that_sends_its_body_slowly_but_steadily_is_served(connect):
    body = json.dumps({"prompt": "abc", "max_tokens": 2}).encode()
    connection = connect()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
    for start in range(0, len(body), 5):
        connection.sendall(body[start : start + 5])
        time.sleep(TIMEOUT_S / 6)
    assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_a_body_that_comes_steadily_but_does_not_end_is_given_up(strict_server, connect):
    before = dropped(strict_server, "slow_request")
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    announced, trailers = connect(), connect()
    began = time.monotonic()
    announced.sendall(post + b"Content-Length: 1000\r\n\r\n")
    trailers.sendall(post + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    waiting = {announced, trailers}
    while waiting:
        for connection in waiting:
            connection.sendall(b"a")
        for connection in select.select(waiting, [], [], TIMEOUT_S / 6)[0]:
            assert BODY_TIMEOUT_S <= time.monotonic() - began < 30
            assert refusal(everything(connection)) == (408, "slow_request")
            waiting.remove(connection)
    assert dropped(strict_server, "slow_request") == before + 2


@pytest.mark.parametrize("kind", ["one header", "many headers", "a path", "behind a body"])
def test_headers_without_end_are_refused(strict_server, connect, kind):
    before = dropped(strict_server, "large_head")
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    start = {"one header": GET + b"A: ", "many headers": GET, "a path": b"GET /", "behind a body": chunked}[kind]
    line = b"a: b\r\n" if kind in ("many headers", "behind a body") else b"aaaaaa"
    connection = connect()
    connection.sendall(start)
    try:
        for _ in range(100):
            connection.sendall(line * 5_000)
    except (ConnectionResetError, BrokenPipeError):
        pass  # it goes on for longer than the server listens
    assert refusal(everything(connection)) == (431, "headers_too_large")
    assert dropped(strict_server, "large_head") == before + 1


def test_headers_that_come_at_once_are_held_to_the_same_limit(connect):
    large = connect()
    large.sendall(GET + b"a: " + b"b" * 66_000 + b"\r\n\r\n")
    assert refusal(everything(large))[0] == 431
    small = connect()
    small.sendall(GET + b"a: " + b"b" * 60_000 + b"\r\n\r\n")
    assert small.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_what_is_no_http_is_refused_in_the_same_shape(strict_server, connect):
    before = dropped(strict_server, "malformed")
    connection = connect()
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # a client that speaks TLS
    assert refusal(everything(connection)) == (400, "malformed_http")
    assert dropped(strict_server, "malformed") == before + 1


def test_a_connection_too_many_is_refused_and_places_come_back(strict_server, connect):
    held = [connect() for _ in range(30)]
    answers = [everything(connection) for connection in held]
    told = [refusal(answer) for answer in answers if answer]
    assert told.count((503, "queue_full")) in (10, 11)  # the last look at the metrics may hold one
    for connection in held:
        connection.close()
    assert eventually(lambda: httpx.get(f"{strict_server.url}/health", timeout=60).status_code == 200)


def test_requests_behind_one_another_are_answered_up_to_a_limit(strict_server, connect):
    few, many = connect(), connect()
    few.sendall((GET + b"\r\n") * 10)
    received = b""
    while received.count(b'{"status":"ok"}') < 10:
        received += few.recv(65536)
    many.sendall((GET + b"\r\n") * 1000)
    everything(many)
    assert dropped(strict_server, "too_many_pipelined") == 1


def ask_for_much(connection):
    """Ask for an answer of several megabytes."""
    body = {"prompt": "a", "max_tokens": MAX_MODEL_LEN - 1, "n": 16, "logprobs": 20, "stream": True, "seed": 1}
    content = json.dumps(body | {"ignore_eos": True}).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content))
    connection.sendall(content)


def running(server):
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    return float(re.search(r"^legato:num_requests_running (\S+)", text, re.MULTILINE)[1])


def test_a_client_that_does_not_read_its_answer_is_dropped(strict_server, connect):
    before = dropped(strict_server, "slow_reader")
    connection = connect(receive_bytes=4096)
    ask_for_much(connection)
    assert eventually(lambda: dropped(strict_server, "slow_reader") == before + 1)
    assert eventually(lambda: running(strict_server) == 0)
    assert b"[DONE]" not in everything(connection)


def test_a_client_that_reads_slowly_but_steadily_gets_its_whole_answer(strict_server, connect):
    before = dropped(strict_server, "slow_reader")
    connection = connect(receive_bytes=65536)
    ask_for_much(connection)
    received, began = b"", time.monotonic()
    while b"[DONE]" not in received:
        received += connection.recv(60_000)
        if time.monotonic() - began < 2 * TIMEOUT_S:
            time.sleep(TIMEOUT_S / 8)
    assert dropped(strict_server, "slow_reader") == before
