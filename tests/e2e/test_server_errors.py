"""Every refusal has the right status and OpenAI's shape."""

import asyncio
import json

import httpx
import openai
import pytest
from scripted_core import REFUSED_TOKEN
from server_process import CLIENT, KEY, eventually

BEARER = {"Authorization": f"Bearer {KEY}"}
HELLO = {"messages": [{"role": "user", "content": "Hi"}]}
ABC = {"prompt": "abc"}


def refusal(response, status):
    """Return the error of a response, having checked its shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)
    return body["error"]


def post(server, path, body, **options):
    return CLIENT.post(f"{server.url}{path}", json=body, timeout=60, **options)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["abc", ""]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["abc", 5]}, "prompt"),
        ({"prompt": [1, 300]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [REFUSED_TOKEN]}, "prompt"),
        ({"prompt": "a" * 256}, "prompt"),
        ({"prompt": "a\ud800"}, None),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": 254}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": [1]}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": 1000}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"stop": [str(number) for number in range(100)]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"stop_token_ids": [300]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [999]}, "allowed_token_ids"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1000}}, "logit_bias"),
        ({"logit_bias": {"999": 1}}, "logit_bias"),
        ({"bad_words": [" "]}, "bad_words"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True, "colour": 1}}, "stream_options"),
        ({"priority": 2**70}, "priority"),
        ({"temprature": 1}, "temprature"),
        ({"best_of": 5}, "best_of"),
        ({"suffix": "end"}, "suffix"),
    ],
)
def test_a_completion_that_cannot_be_served_is_refused_by_field(server, extra, param):
    body = json.dumps(ABC | extra)  # httpx would refuse to encode half a character
    response = CLIENT.post(f"{server.url}/v1/completions", content=body)
    error = refusal(response, 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "king", "content": "Hi"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 300}]}, "prompt"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
        ({"max_completion_tokens": 100_000}, "max_tokens"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "response_format"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {"json": {}, "colour": 1}}, "structured_outputs"),
    ],
)
def test_a_chat_that_cannot_be_served_is_refused_by_field(server, extra, param):
    assert refusal(post(server, "/v1/chat/completions", HELLO | extra), 400)["param"] == param


@pytest.mark.parametrize(
    ("extra", "param", "reason"),
    [
        ({"guided_regex": "("}, "guided_regex", "parenthesis"),
        ({"guided_grammar": "root ::= other"}, "guided_grammar", "other"),
        ({"guided_grammar": "root ::= é"}, "guided_grammar", "Unexpected character"),
        ({"guided_json": "{"}, "guided_json", "not valid JSON"),
        ({"structured_outputs": {"json": {"type": "integer", "multipleOf": 3}}}, "structured_outputs", "multipleOf"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "objct"}}}},
            "response_format",
            "objct",
        ),
    ],
)
def test_a_guide_that_cannot_be_compiled_is_refused_with_the_reason(server, extra, param, reason):
    pytest.importorskip("xgrammar")
    error = refusal(post(server, "/v1/chat/completions", HELLO | extra), 400)
    assert error["param"] == param
    assert reason in error["message"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'"abc"', b'{"prompt": "a", }', b'{"prompt": "\xff"}', b"[" * 5000]
)
def test_a_body_that_is_no_json_object_is_refused(server, content):
    refusal(CLIENT.post(f"{server.url}/v1/completions", content=content), 400)


def test_fields_about_accounts_and_neutral_values_of_others_are_accepted(server):
    extra = {"user": "me", "metadata": {"a": "b"}, "best_of": 1, "suffix": None, "tools": [], "stream_options": None}
    assert post(server, "/v1/completions", ABC | extra).status_code == 200
    assert post(server, "/v1/chat/completions", HELLO | {"response_format": {"type": "text"}}).status_code == 200


def test_unknown_routes_and_wrong_methods_have_the_shape_too(server):
    refusal(CLIENT.get(f"{server.url}/v1/nothing"), 404)
    refusal(CLIENT.get(f"{server.url}/v1/completions"), 405)
    refusal(httpx.delete(f"{server.url}/health"), 405)
    assert refusal(CLIENT.get(f"{server.url}/debug/steps?n=many"), 400)["param"] == "n"


def test_an_unknown_model_is_not_found_and_no_model_is_fine(server):
    for path, body in (("/v1/completions", ABC), ("/v1/chat/completions", HELLO), ("/tokenize", ABC)):
        assert refusal(post(server, path, body | {"model": "gpt-4"}), 404)["code"] == "model_not_found"
        assert post(server, path, body).status_code == 200


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {KEY}", "Bearer", f"Bearer {KEY}x", "Bearer café"])
def test_without_the_key_all_but_health_is_closed(narrow_server, header):
    headers = {} if header is None else {"Authorization": header.encode()}
    for path in ("/v1/models", "/metrics", "/nothing"):
        error = refusal(CLIENT.get(f"{narrow_server.url}{path}", headers=headers), 401)
        assert error["code"] == "invalid_api_key"
    assert CLIENT.get(f"{narrow_server.url}/health", headers=headers).status_code == 200


def test_with_the_key_the_client_is_served(narrow_server):
    with openai.OpenAI(base_url=f"{narrow_server.url}/v1", api_key=KEY, max_retries=0) as client:
        assert client.models.list().data[0].id == "tiny"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()


@pytest.mark.parametrize("size", [10_000, 100_000, 3_000_000])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_refused_whether_or_not_its_length_is_announced(narrow_server, size, announced):
    body = json.dumps({"prompt": "a" * size}).encode()

    def parts():
        for start in range(0, len(body), 5000):
            yield body[start : start + 5000]

    url = f"{narrow_server.url}/v1/completions"
    response = CLIENT.post(url, content=body if announced else parts(), headers=BEARER)
    assert refusal(response, 413)["code"] == "body_too_large"


def test_more_than_the_queue_holds_is_refused_until_there_is_room(narrow_server):
    long, short = (ABC | {"max_tokens": count, "n": 2} for count in (200, 1))
    ask = {"method": "POST", "url": f"{narrow_server.url}/v1/completions", "json": long | {"stream": True}}
    with httpx.Client(headers=BEARER, timeout=60) as client, client.stream(**ask) as one, client.stream(**ask) as two:
        assert (one.status_code, two.status_code) == (200, 200)
        refused = post(narrow_server, "/v1/completions", short, headers=BEARER)
        assert refusal(refused, 503)["code"] == "queue_full"
        assert int(refused.headers["Retry-After"]) >= 1
    assert eventually(lambda: post(narrow_server, "/v1/completions", short, headers=BEARER).status_code == 200)
    assert refusal(post(narrow_server, "/v1/completions", ABC | {"n": 5}, headers=BEARER), 400)["param"] == "n"


def running(server):
    lines = CLIENT.get(f"{server.url}/metrics", headers=BEARER).text.splitlines()
    return float(next(line for line in lines if line.startswith("legato:num_requests_running ")).split()[1])


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slots_long_before_its_answer_would_end(narrow_server, stream):
    async def leave():
        async with httpx.AsyncClient(headers=BEARER, timeout=60) as client:
            body = ABC | {"max_tokens": 200, "n": 4, "stream": stream}
            asking = asyncio.create_task(client.post(f"{narrow_server.url}/v1/completions", json=body))
            assert await asyncio.to_thread(eventually, lambda: running(narrow_server) == 4)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(leave())
    assert eventually(lambda: running(narrow_server) == 0, within=5), "by itself it would have run for ten seconds"
    body = ABC | {"max_tokens": 1, "n": 4}
    assert post(narrow_server, "/v1/completions", body, headers=BEARER).status_code == 200
