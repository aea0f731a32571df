"""What a browser may do on behalf of another site's page: read nothing, and make the engine do nothing.

A page whose own name leads to the server once the browser has it (DNS rebinding) is another site's too.
"""

import httpx
import pytest
from server_process import KEY

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


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/start_profile"])
def test_a_page_of_another_site_is_refused(server, site, path):
    response = httpx.post(server.url + path, json=BODY, headers={"Sec-Fetch-Site": site, "Origin": "https://a.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "cross_site")


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}])
def test_the_servers_own_page_and_other_clients_are_served(server, headers):
    assert httpx.post(f"{server.url}/v1/completions", json=BODY, headers=headers).status_code == 200


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
