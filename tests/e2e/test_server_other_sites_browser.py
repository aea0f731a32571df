"""What headless Chromium itself says of a page's site to a server of a network, and what comes of it; else skipped."""

import shutil

import pytest
from server_process import running_server

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the browser tests need playwright: pip install playwright"
)

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
NAMES = "--host-resolver-rules=MAP *.example 127.0.0.1"
FETCH = 'async url => (await fetch(url, {method: \'POST\', body: \'{"prompt": "abc", "max_tokens": 1}\'})).status'
SUBMIT = """url => {
    const form = Object.assign(document.createElement("form"), {method: "POST", enctype: "text/plain", action: url});
    document.documentElement.append(form);
    form.submit();
}"""
LOAD_MS = 20_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the browser tests need Chromium: apt-get install chromium")


def test_without_tls_a_browser_tells_the_origin_alone_and_that_is_enough(options):
    with running_server(options, host="0.0.0.0") as server, playwright.sync_playwright() as runner:
        port = server.url.rpartition(":")[2]
        own, other = f"http://box.example:{port}", f"http://other.example:{port}"
        # A container's root has no user namespace for the sandbox; the pages are our own.
        page = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", NAMES]).new_page()
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
