"""The socket that clients connect to: what accepted ones inherit, and how many of them the system allows."""

import resource
import socket

import pytest

from legato.config.server import ServerOptions
from legato.server.listener import OTHER_FILES, PROBE_AFTER_S, SEND_BUFFER_BYTES, allowed_connections, bound_socket


def test_an_accepted_connection_is_probed_when_silent_and_holds_little_that_nobody_reads():
    with bound_socket(ServerOptions(port=0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()) as _, listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == PROBE_AFTER_S
            # The system doubles what it is told, for its own records.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SEND_BUFFER_BYTES


@pytest.mark.parametrize(
    ("limits", "allowed", "asked_for"),
    [
        ((100_000, 100_000), 4096, None),
        ((1024, 100_000), 4096, 4096 + OTHER_FILES),
        ((1024, resource.RLIM_INFINITY), 4096, 4096 + OTHER_FILES),
        ((1024, 2000), 2000 - OTHER_FILES, 2000),
        ((100, 100), 1, 100),
    ],
)
def test_no_more_connections_are_taken_than_there_are_files_for(monkeypatch, limits, allowed, asked_for):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair[0]))
    assert allowed_connections(4096) == allowed
    assert asked == ([] if asked_for is None else [asked_for])
