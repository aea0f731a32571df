"""The description that the server gives of itself: whole, and of nothing but what the routes read and write."""

import json
import re
from typing import Any

import pytest
from fastapi import FastAPI

from legato.errors import LegatoError
from legato.server import chat, completions, openapi, operations, profiling, tokenizing, ui_routes
from legato.server.errors import ApiError
from legato.server.extras import check_extras
from legato.server.openapi import document
from legato.server.responses_api import route as responses_route

MODULES = (chat, completions, openapi, operations, profiling, responses_route, tokenizing, ui_routes)


def described(*, keyed: bool = False) -> dict[str, Any]:
    app = FastAPI(openapi_url=None)
    for module in MODULES:
        app.include_router(module.router)
    return document(app.routes, keyed=keyed)


def test_every_type_that_is_named_is_described_and_no_other() -> None:
    found = described()
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)))
    assert named == set(found["components"]["schemas"]) - {"ChatChunk", "ResponsesEvent"}, (
        "what a stream holds is named in its text"
    )


def test_every_route_but_those_of_the_page_is_described() -> None:
    routes = {re.sub(r":path\}", "}", route.path) for module in MODULES[:-1] for route in module.router.routes} - {
        "/openapi.json"
    }
    assert set(described()["paths"]) == routes


def test_every_body_and_every_answer_has_a_type() -> None:
    for path, operations_ in described()["paths"].items():
        for method, operation in operations_.items():
            assert (method == "post" and "profile" not in path) == ("requestBody" in operation), path
            assert "200" in operation["responses"], path
            assert "422" not in operation["responses"], path


def test_only_a_server_with_a_key_asks_for_one_and_never_for_its_health() -> None:
    open_, keyed = described(), described(keyed=True)
    assert "securitySchemes" not in open_["components"]
    assert {one["security"] != [] for path in open_["paths"].values() for one in path.values()} == {False}
    locked = {path: "401" in one["responses"] for path, each in keyed["paths"].items() for one in each.values()}
    assert [path for path, is_locked in locked.items() if not is_locked] == ["/health"]


@pytest.mark.parametrize("field", ["best_of", "user", "use_beam_search", "temprature"])
@pytest.mark.parametrize("value", [None, True, False, 1, 2, "none", {}])
def test_a_field_without_effect_is_described_as_it_is_judged(field: str, value: Any) -> None:
    properties = described()["components"]["schemas"]["CompletionBody"]["properties"]
    allowed = field in properties and any(
        value == one and type(value) is type(one) for one in properties[field].get("enum", [value])
    )
    try:
        check_extras({field: value})
    except (ApiError, LegatoError):
        assert not allowed
    else:
        assert allowed
