"""The files of the live page: small, complete, of the server alone, and in step with what the engine tells."""

import re

from legato.observability.reasons import Reason
from legato.observability.records import StepRecord
from legato.server.live import Row
from legato.server.ui_routes import CONTENT_SECURITY_POLICY, OPEN_PATHS, PAGE

TEXTS = {name: file.content.decode() for name, file in PAGE.items()}
MAX_FILE_LINES = 250


def test_every_file_that_the_page_names_is_served():
    named = set(re.findall(r'(?:src|href)="([\w.-]+)"', TEXTS["index.html"]))
    imported = {name for text in TEXTS.values() for name in re.findall(r'from "\./([\w.]+)"', text)}
    assert {"style.css", "main.js"} <= named
    assert (named | imported) - PAGE.keys() == set()
    assert imported | named | {"index.html"} == PAGE.keys(), "no file is served that nothing uses"


def test_the_page_asks_nobody_but_its_server():
    found = {name: re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text) for name, text in TEXTS.items()}
    assert {url for urls in found.values() for url in urls} == {"http://www.w3.org/2000/svg"}
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert not re.search(r"\son\w+=|style=|<script(?! type=\"module\" src)", TEXTS["index.html"]), (
        "the policy forbids it"
    )


def test_a_file_of_the_page_is_short_enough_to_hold_one_concept():
    lines = {name: len(text.splitlines()) for name, text in TEXTS.items()}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_every_reason_is_explained():
    explained = re.findall(r"^  (\w+): ", TEXTS["reasons.js"], re.MULTILINE)
    assert sorted(explained) == sorted(str(reason) for reason in Reason)


def test_the_fields_of_a_row_are_those_of_a_step_record():
    places = re.search(r"STEP = \{(.*?)\}", TEXTS["steps_painter.js"])
    assert places is not None
    names = re.findall(r"(\w+): (\d+)", places[1])
    assert [int(place) for _, place in names] == list(range(len(Row.__args__)))
    fields = ["step", "stage", "requested", "mode", "reason", "key", "num_reqs", "num_tokens", "num_tokens_padded"]
    assert list(StepRecord.__struct_fields__) == [*fields, "host_us", "device_us"]
    assert [name for name, _ in names[1:6]] == fields[1:6]


def test_keys_stay_in_the_session_and_text_is_never_markup():
    assert [name for name, text in TEXTS.items() if "sessionStorage" in text] == ["key.js"]
    assert [name for name, text in TEXTS.items() if "localStorage" in text] == ["theme.js"]
    assert [name for name, text in TEXTS.items() if "innerHTML" in text or "insertAdjacentHTML" in text] == []


def test_only_files_are_open_without_a_key():
    assert {"/ui/events", "/ui/about"}.isdisjoint(OPEN_PATHS)
    assert {"/ui", "/ui/", *(f"/ui/{name}" for name in PAGE)} == OPEN_PATHS
