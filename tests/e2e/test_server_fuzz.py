"""Whatever a body holds, the answer is an answer or a refusal in the usual shape, and the server lives on."""

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legato.server.extras import NEUTRAL, NO_BEARING
from legato.server.requests import ChatBody, CompletionBody

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 40) | st.floats() | st.sampled_from([1e400, -0.0, 0.5])
TEXTS = st.text(max_size=5) | st.sampled_from(["\x00", "\ud83d", "<|end|>", "é" * 3, "a" * 300])
ROLES = st.sampled_from(["user", "system", "assistant", "tool", "king"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXTS}), max_size=3)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS | MESSAGES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("12"), inner, max_size=3),
    max_leaves=5,
)


def bodies(kind, prompt):
    names = sorted(set(kind.model_fields) - set(prompt) | NO_BEARING | set(NEUTRAL))
    return st.builds(
        lambda good, wild: {"max_tokens": 3} | good | wild,
        st.fixed_dictionaries({name: value | VALUES for name, value in prompt.items()}),
        st.dictionaries(st.sampled_from(names), VALUES, max_size=3),
    )


PROMPTS = {"prompt": st.text(min_size=1, max_size=5) | st.lists(st.integers(0, 290), min_size=1, max_size=4)}
ANY_BODY = st.tuples(st.just("/v1/completions"), bodies(CompletionBody, PROMPTS)) | st.tuples(
    st.just("/v1/chat/completions"), bodies(ChatBody, {"messages": MESSAGES})
)


@pytest.fixture(scope="module")
def connection(server):
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(request=ANY_BODY)
def test_no_body_makes_the_server_fail(connection, request):
    path, body = request
    response = connection.post(path, content=json.dumps(body))
    if response.status_code == 200:
        assert '"error"' not in response.text or "data: [DONE]" in response.text
    else:
        assert response.status_code in (400, 404), response.text
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    assert connection.get("/health").status_code == 200
