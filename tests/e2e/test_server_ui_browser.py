"""The live page in headless Chromium, over the real engine with a tiny random model; skipped where that is not."""

from pathlib import Path

import pytest
from server_browser import LOAD_MS, running_browser
from server_process import CLIENT, KEY, REAL, eventually, running_server

from legato.config.options import EngineOptions

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def ui_server(tiny_model: Path):
    engine = EngineOptions(model=str(tiny_model), served_model_name="tiny", max_num_seqs=4, max_num_batched_tokens=64)
    with running_server(engine, factory=REAL) as server:
        yield server


@pytest.fixture(scope="module")
def slow_server(options: EngineOptions):
    """A server that takes ten seconds for an answer."""
    with running_server(options, step_s=0.1) as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """Open the page; at the end, nothing has been written to the console and nothing was asked of another host."""
    contexts, complaints, hosts = [], [], set()

    def open_page(server, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(LOAD_MS)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/ui")[0].split("/v1")[0]))
        page.goto(f"{server.url}/ui")
        return page

    open_page.complaints = complaints
    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert len(hosts) <= 1


def ask(page, text: str, *, max_tokens: int = 12) -> None:
    page.locator(".sampling summary").click()
    page.fill("#max_tokens", str(max_tokens))
    page.fill("#message", text)
    page.click("#send")


def live(page) -> None:
    page.wait_for_selector("#link[data-state=live]")


def last_step(page) -> int:
    return int(page.get_attribute("#steps", "data-last") or 0)


def test_the_chat_answers_and_the_timeline_moves(ui_server, visit):
    page = visit(ui_server)
    live(page)
    before = last_step(page)
    ask(page, "Hello there")
    answer = page.locator(".message.assistant:not(.streaming)")
    assert "12 tokens" in answer.locator(".note").inner_text()
    assert answer.locator("p").first.inner_text() != ""
    assert eventually(lambda: last_step(page) >= before + 12)
    assert page.locator("#empty").is_hidden()
    assert page.title() == "tiny · Legato"
    assert "FULL" in page.inner_text("#modes")
    assert page.locator("#keys tr:not(.never)").count() > 0, "a graph has been replayed"
    assert page.locator("#keys tr.never .badge").first.inner_text() == "never replayed"


def test_an_answer_can_be_stopped_and_another_begun(slow_server, visit):
    page = visit(slow_server)
    ask(page, "Tell me everything", max_tokens=90)
    page.click("#stop-answer")
    page.wait_for_selector(".message.assistant:not(.streaming)")
    assert "stopped by you" in page.inner_text(".message.assistant .note")
    assert eventually(lambda: page.inner_text("[data-value=running]") == "0"), "the engine has stopped too"
    page.click("#clear")
    assert page.locator(".message").count() == 0
    page.fill("#max_tokens", "3")
    page.fill("#message", "Again")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.assistant:not(.streaming)")


def test_a_forced_fallback_shows_its_reason(ui_server, visit):
    page = visit(ui_server)
    live(page)
    page.wait_for_selector("#keys tr")
    before = last_step(page)
    body = {"prompt": "one two three", "max_tokens": 1, "prompt_logprobs": 1}
    assert CLIENT.post(f"{ui_server.url}/v1/completions", json=body).status_code == 200
    assert eventually(lambda: last_step(page) > before)
    page.focus("#steps")
    page.keyboard.press("End")
    reason = page.inner_text("#tip .reason code")
    assert reason in page.inner_text("#fallbacks")
    assert reason in ("feature_incompatible", "disabled_by_user")
    assert len(page.inner_text("#tip .reason")) > len(reason) + 10, "the code is explained"
    assert reason.replace("_", " ") in page.inner_text("#spoken")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#pause", "aria-pressed") == "true"


def test_a_refusal_is_told_in_the_chat(ui_server, visit):
    page = visit(ui_server)
    ask(page, "Too long", max_tokens=10**6)
    page.wait_for_selector(".message.error")
    assert "max_tokens" in page.inner_text(".message.error .note")
    visit.complaints[:] = [text for text in visit.complaints if "status of 400" not in text]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(ui_server, visit, scheme):
    page = visit(ui_server, **PHONE, color_scheme=scheme)
    live(page)
    ask(page, "a-very-long-word-" * 4)
    page.wait_for_selector(".message.assistant:not(.streaming)")
    page.locator("#steps").tap()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["viewport"]["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(15, 18, 20)") == (scheme == "dark")
    small = page.evaluate(
        "[...document.querySelectorAll('button')].filter((each) => each.offsetHeight && each.offsetHeight < 32).length"
    )
    assert small == 0, "every button can be hit with a finger"


def test_the_scheme_can_be_switched_and_is_remembered(ui_server, visit):
    page = visit(ui_server, color_scheme="light")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 20)"


def test_the_page_asks_for_the_key_and_forgets_it_with_the_tab(browser, visit, narrow_server):
    page = visit(narrow_server)
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key", "wrong")
    page.keyboard.press("Enter")
    assert eventually(lambda: page.inner_text("#key-note").startswith("That key"))
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    live(page)
    assert page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]") == [
        [KEY],
        [],
        "",
    ]
    visit.complaints[:] = [text for text in visit.complaints if "status of 401" not in text]


def test_every_control_has_a_name(ui_server, visit):
    page = visit(ui_server)
    live(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, textarea, canvas')].filter((each) =>
            !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
