"""What headless Chromium itself says of a page's site to a server of a network, and what comes of it; else skipped."""

from server_browser import LOAD_MS, running_browser
from server_process import running_server

NAMES = "--host-resolver-rules=MAP *.example 127.0.0.1"
FETCH = """async url => {
    const body = JSON.stringify({prompt: "abc", max_tokens: 1});
    return (await fetch(url, {method: "POST", body})).status;
}"""
SUBMIT = """url => {
    const form = Object.assign(document.createElement("form"), {method: "POST", enctype: "text/plain", action: url});
    document.documentElement.append(form);
    form.submit();
}"""


def test_without_tls_a_browser_tells_the_origin_alone_and_that_is_enough(options):
    with running_server(options, host="0.0.0.0") as server, running_browser(NAMES) as browser:
        port = server.url.rpartition(":")[2]
        own, other = f"http://box.example:{port}", f"http://other.example:{port}"
        page = browser.new_page()
        page.set_default_timeout(LOAD_MS)
        page.goto(f"{own}/version")
        assert page.evaluate(FETCH, f"{own}/v1/completions") == 200
        page.goto(f"{other}/version")
        with page.expect_navigation() as answered:
            page.evaluate(SUBMIT, f"{own}/v1/completions")
        asked = answered.value.request.all_headers()
        assert (asked["host"], asked["origin"]) == (f"box.example:{port}", other)
        assert "sec-fetch-site" not in asked
        assert (answered.value.status, answered.value.json()["error"]["code"]) == (403, "cross_site")
