"""The names that a server answers to: which they are for each way of binding it, and how a request's is compared."""

import asyncio

import pytest

from legato.config.server import ServerOptions
from legato.errors import ConfigError
from legato.server.hosts import RefuseOtherHosts, hosts_of

LOCAL = {"localhost", "127.0.0.1", "::1"}


def answers_to(hosts, *asked: str) -> bool:
    """Return whether a request with these ``Host`` headers reaches the application."""
    reached = []

    async def application(scope, receive, send):
        reached.append(True)

    async def send(message):
        assert message.get("status", 403) == 403

    scope = {"type": "http", "headers": [(b"host", each.encode("latin-1")) for each in asked]}
    asyncio.run(RefuseOtherHosts(application, hosts=hosts)(scope, None, send))
    return bool(reached)


@pytest.mark.parametrize(
    ("options", "address", "hosts"),
    [
        ({}, "127.0.0.1", LOCAL),
        ({"host": "192.0.2.7"}, "192.0.2.7", LOCAL | {"192.0.2.7"}),
        ({"host": "Box.example"}, "192.0.2.7", LOCAL | {"192.0.2.7", "box.example"}),
        ({"host": "0:0::1"}, "::1", LOCAL),
        ({"allowed_hosts": ("a,B.example", "[2001:DB8::1]")}, "127.0.0.1", LOCAL | {"a", "b.example", "2001:db8::1"}),
        ({"host": "0.0.0.0", "allowed_hosts": ("a",)}, "0.0.0.0", LOCAL | {"0.0.0.0", "a"}),
        ({"api_key": "k", "allowed_hosts": ("a",)}, "127.0.0.1", LOCAL | {"a"}),
        ({"host": "0.0.0.0"}, "0.0.0.0", None),
        ({"host": "::"}, "::", None),
        ({"api_key": "k"}, "127.0.0.1", None),
        ({"allowed_hosts": ("a", "*")}, "127.0.0.1", None),
    ],
)
def test_a_server_answers_to_its_own_names_and_those_given_and_to_any_where_rebinding_gains_nothing(
    options, address, hosts
):
    assert hosts_of(ServerOptions(**options), address) == hosts


@pytest.mark.parametrize("name", ["http://a", "a:8000", "a/b", "a b", "", "*.", "a*", "*.*", "[a]"])
def test_a_name_that_no_request_can_ask_for_is_refused(name):
    with pytest.raises(ConfigError) as caught:
        hosts_of(ServerOptions(allowed_hosts=(name,)), "127.0.0.1")
    assert f"--allowed-hosts {name}" in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    ["localhost", "localhost:8000", "LocalHost.:80", "127.0.0.1:1", "[::1]:8000", "[0:0:0::1]", "a.b.example:1"],
)
def test_a_name_is_compared_without_port_and_case(asked):
    assert answers_to([*LOCAL, "*.b.example"], asked)


@pytest.mark.parametrize(
    "asked",
    [
        "evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "b.example",
        "ab.example",
        "evil.example@localhost",
        "localhost@evil.example",
        "localhost:80:80",
        "[::1",
        "[localhost",
        "::1",
        "localhost/",
        "0.0.0.0:8000",
        "127.1",
        "",
    ],
)
def test_every_other_name_is_refused(asked):
    assert not answers_to([*LOCAL, "*.b.example"], asked)


def test_of_two_names_both_must_be_the_servers_and_without_any_no_browser_asks():
    assert not answers_to(LOCAL, "localhost", "evil.example")
    assert not answers_to(LOCAL, "evil.example", "localhost")
    assert answers_to(LOCAL)
