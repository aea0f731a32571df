"""What a browser may do on behalf of another site's page: read nothing, and make the engine do nothing.

A page whose own name leads to the server once the browser has it (DNS rebinding) is another site's too. To an address
without TLS that is not the machine's own, a browser says of a page's site no more than its ``Origin``.
"""

import httpx
import pytest
from server_process import KEY, running_server

BODY = {"prompt": "abc", "max_tokens": 1}
REBOUND = {"Host": "rebound.example:8000"}
PATHS = [
    "/v1/models",
    "/health",
    "/metrics",
    "/openapi.json",
    "/debug/steps",
    "/ui/",
    "/ui/main.js",
    "/ui/live",
    "/none",
]


@pytest.fixture(scope="module")
def open_server(options):
    """A server of a whole network, without a key; what a proxy calls it was given."""
    with running_server(options, host="0.0.0.0", allowed_hosts=("*", "front.example,*.lab.example")) as server:
        yield server


def asked_as(server, host, origin, **more):
    """Post what a browser can without anybody's leave, at an address that it does not trust."""
    headers = {"Host": host, "Origin": origin, "Content-Type": "text/plain"} | more
    return httpx.post(f"{server.url}/v1/completions", json=BODY, headers=headers, timeout=60)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/start_profile"])
def test_a_page_of_another_site_is_refused(server, site, path):
    response = httpx.post(server.url + path, json=BODY, headers={"Sec-Fetch-Site": site, "Origin": "https://a.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "cross_site")


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}])
def test_the_servers_own_page_and_other_clients_are_served(server, headers):
    assert httpx.post(f"{server.url}/v1/completions", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.7:8000", "http://evil.example"),
        ("192.0.2.7:8000", "https://evil.example:8000"),
        ("192.0.2.7:8000", "http://192.0.2.7"),
        ("192.0.2.7:8000", "http://192.0.2.7:3000"),
        ("192.0.2.7:8000", "http://192.0.2.70:8000"),
        ("192.0.2.7:8000", "null"),
        ("box.example", "http://evil.example"),
        ("box.example", "http://box.example.evil.example"),
        ("box.example", "http://box.example@evil.example"),
        ("box.example", "http://evil.example@box.example"),
        ("box.example", "http://[box.example"),
        ("box.example", "http://lab.example"),
    ],
)
def test_where_the_browser_says_nothing_else_a_page_of_another_origin_is_refused(open_server, host, origin):
    response = asked_as(open_server, host, origin)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (403, "cross_site")
    assert repr(origin) in error["message"]


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.7:8000", "http://192.0.2.7:8000"),
        ("[2001:db8::7]:8000", "http://[2001:DB8::7]:8000"),
        ("Box.example", "http://box.example"),
        ("box.example:80", "http://box.example"),
        ("box.example", "https://box.example"),
        ("box.example:443", "https://box.example"),
        ("box.example:8443", "https://box.example:8443"),
        ("box.example", "http://box.example:8080"),
        ("10.0.0.3:8000", "http://front.example:8080"),
        ("10.0.0.3:8000", "https://a.lab.example"),
        ("192.0.2.7:8000", "chrome-extension://abcdefgh"),
        ("192.0.2.7:8000", "app://obsidian.md"),
    ],
    ids=str,
)
def test_the_servers_own_page_is_served_behind_a_proxy_too_and_so_are_applications(open_server, host, origin):
    assert asked_as(open_server, host, origin).status_code == 200


def test_a_proxy_may_tell_what_the_browser_asked_for(open_server):
    told = {"X-Forwarded-Host": "inner.example, box.example"}
    assert asked_as(open_server, "10.0.0.3:8000", "http://box.example", **told).status_code == 200
    assert asked_as(open_server, "10.0.0.3:8000", "http://evil.example", **told).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_what_the_browser_says_itself_counts_whatever_a_proxy_has_made_of_the_host(open_server, site):
    told = {"Sec-Fetch-Site": site}
    assert asked_as(open_server, "10.0.0.3:8000", "https://box.example", **told).status_code == 200


def test_clients_that_are_no_browser_are_served_under_any_name(open_server):
    assert (
        httpx.post(f"{open_server.url}/v1/completions", json=BODY, headers={"Host": "any.example"}).status_code == 200
    )


def test_a_link_from_another_site_leads_to_the_page(server):
    response = httpx.get(f"{server.url}/ui/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert response.status_code == 200


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "GET"])
def test_no_answer_is_open_to_another_origin(server, method):
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    for path in ("/v1/completions", "/v1/models", "/openapi.json", "/ui/"):
        response = httpx.request(method, server.url + path, headers=asked)
        assert not [name for name in response.headers if name.startswith("access-control-")], path


@pytest.mark.parametrize("path", PATHS)
def test_a_page_whose_name_was_made_to_lead_here_reads_nothing(server, path):
    response = httpx.get(server.url + path, headers=REBOUND)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (403, "invalid_request_error", "host_not_allowed")
    assert "'rebound.example:8000'" in error["message"]
    assert "--allowed-hosts" in error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_such_a_page_makes_the_engine_do_nothing(server, path):
    body = BODY | {"messages": [{"role": "user", "content": "a"}], "stream": True}
    assert httpx.post(server.url + path, json=body, headers=REBOUND | {"Content-Type": "text/plain"}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8000", "LOCALHOST:8000"])
def test_the_server_answers_to_its_own_names(server, host):
    stream = httpx.post(f"{server.url}/v1/completions", json=BODY | {"stream": True}, headers={"Host": host})
    assert (stream.status_code, stream.text[-14:]) == (200, "data: [DONE]\n\n")


def test_a_server_with_a_key_answers_to_any_name_for_such_a_page_has_no_key(narrow_server):
    headers = REBOUND | {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(f"{narrow_server.url}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{narrow_server.url}/v1/models", headers=REBOUND).status_code == 401
