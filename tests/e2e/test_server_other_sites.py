"""What a browser may do on behalf of another site's page: read nothing, and make the engine do nothing."""

import httpx
import pytest

BODY = {"prompt": "abc", "max_tokens": 1}


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
