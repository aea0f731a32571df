"""Headless Chromium for tests of what browsers do with a server; importing this skips where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the browser tests need playwright: pip install playwright"
)

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
if CHROMIUM is None:
    pytest.skip("the browser tests need Chromium: apt-get install chromium", allow_module_level=True)
LOAD_MS = 20_000


@contextmanager
def running_browser(*arguments: str) -> Iterator[Any]:
    """Start a browser, and end it."""
    with playwright.sync_playwright() as runner:
        # A container's root has no user namespace for the sandbox; the pages are our own.
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *arguments])
        yield browser
        browser.close()
