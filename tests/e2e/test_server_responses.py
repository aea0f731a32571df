"""``/v1/responses`` of a server process whose engine counts: what it gives, what it refuses, and how a stream fails."""

import json
import os
import signal

import httpx
import openai
import pytest
import sse_reader
from server_process import CLIENT, running_server

SAID = {"role": "user", "content": "a"}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def refusal(server, **fields):
    response = CLIENT.post(f"{server.url}/v1/responses", json={"input": "a", **fields})
    assert response.status_code == 400, response.text
    return response.json()["error"]


def test_a_text_and_a_conversation_are_answered_whole_and_as_a_stream(client):
    for said in ("a", [SAID], [SAID | {"type": "message", "content": [{"type": "input_text", "text": "a"}]}]):
        whole = client.responses.create(model="tiny", input=said, max_output_tokens=5)
        events = list(client.responses.create(model="tiny", input=said, max_output_tokens=5, stream=True))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert len(deltas) > 1
        assert whole.output_text == "".join(deltas) == events[-1].response.output_text
        assert whole.usage.output_tokens == events[-1].response.usage.output_tokens == 5
        chat = client.chat.completions.create(model="tiny", messages=[SAID], max_tokens=5)
        assert (whole.output_text, whole.usage.input_tokens) == (
            chat.choices[0].message.content,
            chat.usage.prompt_tokens,
        )


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no responses"),
        ({"store": True}, "store", "keeps no responses"),
        ({"tools": [{"type": "web_search"}]}, "tools", "only tools of type function"),
        ({"tools": [{"type": "function", "name": "a"}]}, "tools", "--tool-call-parser"),
        ({"input": []}, "input", "at least 1 item"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "an item is of type message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]}, "input", "input_text"),
        (
            {"input": [{"type": "function_call", "call_id": "a", "name": "a", "arguments": "{"}]},
            "input",
            "input: the arguments of a tool call are no JSON",
        ),
        ({"input": "a" * 300}, "input", ""),
        ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "max_output_tokens", "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text", "text has no schema"),
        ({"reasoning": {"effort": "high"}}, "reasoning", ""),
        ({"truncation": "auto"}, "truncation", ""),
        ({"background": True}, "background", "keeps no responses"),
        ({"background": 0}, "background", "boolean"),
        ({"top_logprobs": 1}, "top_logprobs", "less than or equal to 0"),
        ({"top_logprobs": False}, "top_logprobs", "integer"),
        ({"conversation": "conv_1"}, "conversation", ""),
        ({"include": ["message.output_text.logprobs"]}, "include", ""),
        ({"max_tokens": 5}, "max_tokens", "no such field"),
        ({"messages": [SAID]}, "messages", "no such field"),
    ],
)
def test_a_refusal_names_the_field_as_this_interface_calls_it(server, fields, param, message):
    error = refusal(server, **fields)
    assert error["param"] == param, error
    assert message in error["message"]


def test_what_asks_for_nothing_unusual_is_accepted(client):
    usual = {"store": False, "truncation": "disabled", "background": False, "user": "a", "service_tier": "auto"}
    usual |= {"include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}, "verbosity": "medium"}}
    answer = client.responses.create(model="tiny", input="a", max_output_tokens=2, reasoning={}, **usual)
    assert answer.status == "incomplete"


def test_responses_are_not_kept(client):
    answer = client.responses.create(model="tiny", input="a", max_output_tokens=2)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_a_stream_that_cannot_go_on_ends_with_a_failed_response(options):
    body = {"input": "a", "max_output_tokens": 190, "stream": True}
    with (
        running_server(options, step_s=0.05) as server,
        httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=60) as response,
    ):
        events = sse_reader.events(response)
        first = [next(events) for _ in range(6)]
        os.kill(server.engine_pid(), signal.SIGKILL)
        told = [json.loads(data) for _, data in (*first, *events)]
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    last = told[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "server_error"
    assert "SIGKILL" in last["response"]["error"]["message"]
