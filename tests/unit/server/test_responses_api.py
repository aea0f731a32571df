"""``/v1/responses`` through the application, as OpenAI's client sees it. The model repeats what it is told."""

import asyncio
import json

import openai
import pytest
from app_client import CALLS, REAL, serving
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter
from tiny_model import write_tiny_model

from legato.server.errors import ApiError
from legato.server.requests import Message
from legato.server.responses_api.body import ResponsesBody
from legato.server.responses_api.translation import as_chat

TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("weather", "time")]
ITEM = ["response.output_item.added", "response.content_part.added"]
ITEM_END = ["response.content_part.done", "response.output_item.done"]
EVENT = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def run(work, model, **options):
    async def serve():
        async with serving(model, **({"tool_call_parser": "hermes", "reasoning_parser": "think"} | options)) as client:
            await work(client.responses)

    asyncio.run(asyncio.wait_for(serve(), 240))


async def streamed(responses, told, **fields):
    """Return the events of a stream, each as OpenAI's types have it, and numbered."""
    stream = await responses.create(model="tiny", input=told, stream=True, **fields)
    events = [event async for event in stream]
    for event in events:
        EVENT.validate_python(event.to_dict(), strict=True)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def kinds(events):
    """Return the types of the events, those of deltas that follow one another once."""
    types = [event.type for event in events]
    return [kind for kind, before in zip(types, [None, *types], strict=False) if kind != before]


def items(response):
    """Return what the items of a response hold, without their ids."""
    Response.model_validate(response.to_dict(), strict=True)
    return [
        (item.type, item.status, (item.name, item.arguments) if item.type == "function_call" else item.content[0].text)
        for item in response.output
    ]


def test_a_stream_tells_every_item_from_its_beginning_to_its_end_and_the_same_as_a_whole_answer(model):
    expected = [
        ("reasoning", "completed", "Hm"),
        ("message", "completed", "Look."),
        ("function_call", "completed", ("weather", '{"city": "Bern"}')),
        ("function_call", "completed", ("time", "{}")),
    ]
    call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]

    async def work(responses):
        whole = await responses.create(model="tiny", input=CALLS, tools=TOOLS)
        assert (whole.status, items(whole)) == ("completed", expected)
        assert len({item.id for item in whole.output}) == 4
        events = await streamed(responses, CALLS, tools=TOOLS)
        assert kinds(events) == [
            *("response.created", "response.in_progress"),
            *(*ITEM, "response.reasoning_text.delta", "response.reasoning_text.done", *ITEM_END),
            *(*ITEM, "response.output_text.delta", "response.output_text.done", *ITEM_END),
            *(call + call),
            "response.completed",
        ]
        last = events[-1].response
        assert items(last) == expected
        assert last.usage.output_tokens == whole.usage.output_tokens == len(CALLS) + 1
        assert last.usage.total_tokens == last.usage.input_tokens + last.usage.output_tokens
        assert {event.response.id for event in events if hasattr(event, "response")} == {last.id}
        assert [event.item.to_dict() for event in events if event.type == "response.output_item.done"] == [
            item.to_dict() for item in last.output
        ]
        for index, item in enumerate(last.output):
            deltas = [event for event in events if event.type.endswith(".delta") and event.output_index == index]
            text = item.arguments if item.type == "function_call" else item.content[0].text
            assert "".join(event.delta for event in deltas) == text
            assert {event.item_id for event in deltas} == {item.id}

    run(work, model)


def test_the_client_gathers_a_stream_as_it_does_openais(model):
    async def work(responses):
        async with responses.stream(model="tiny", input=CALLS, tools=TOOLS) as stream:
            snapshots = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        assert (snapshots[-1], final.output_text) == ("Look.", "Look.")
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
        only = await responses.create(model="tiny", input=CALLS, tools=TOOLS, parallel_tool_calls=False)
        assert [item[0] for item in items(only)] == ["reasoning", "message", "function_call"]
        named = await responses.create(
            model="tiny",
            input='<tool_call>\n{"name": "time", "arguments": {"a": 1}}\n</tool_call>',
            tools=TOOLS,
            tool_choice={"type": "function", "name": "time"},
        )
        assert items(named) == [("function_call", "completed", ("time", '{"a": 1}'))]

    run(work, model)


def test_an_answer_that_is_cut_off_is_incomplete_and_an_empty_one_is_an_empty_message(model):
    async def work(responses):
        whole = await responses.create(model="tiny", input=CALLS, max_output_tokens=21)
        assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert items(whole) == [("reasoning", "completed", "Hm"), ("message", "incomplete", "Look")]
        events = await streamed(responses, CALLS, max_output_tokens=21)
        assert events[-1].type == "response.incomplete"
        assert items(events[-1].response) == items(whole)
        empty = await streamed(responses, "")
        assert kinds(empty)[2:-1] == [*ITEM, "response.output_text.done", *ITEM_END]
        assert items(empty[-1].response) == [("message", "completed", "")]

    run(work, model)


def test_what_was_asked_for_is_given_back(model):
    asked = {
        "instructions": "Echo.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.25,
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": TOOLS,
    }

    async def work(responses):
        answer = await responses.create(model="tiny", input="abc", store=False, **asked)
        given = answer.to_dict()
        assert {name: given[name] for name in asked} == asked
        assert answer.output_text == "abc"
        assert (given["object"], given["model"], given["store"], given["error"]) == ("response", "tiny", False, None)
        assert given["text"] == {"format": {"type": "text"}}

    run(work, model)


class City(BaseModel):
    """A form that no random weights would write by themselves."""

    city: bool


def test_the_text_has_the_form_that_is_asked_for(model):
    form = {"type": "json_schema", "name": "City", "schema": City.model_json_schema(), "strict": True}

    async def work(responses):
        parsed = await responses.parse(model="tiny", input="a", text_format=City, max_output_tokens=200)
        assert isinstance(parsed.output_parsed, City)
        events = await streamed(responses, "a", text={"format": form}, max_output_tokens=200, temperature=1.5)
        City.model_validate_json(events[-1].response.output_text)
        assert events[-1].response.to_dict()["text"] == {"format": form}
        with pytest.raises(openai.BadRequestError) as caught:
            await responses.create(model="tiny", input="a", text={"format": {"type": "json_schema", "name": "a"}})
        assert (caught.value.param, caught.value.body["message"][:18]) == ("text", "text has no schema")

    run(work, model, factory=REAL, tool_call_parser="none", reasoning_parser="none")


def messages_of(*items, **fields):
    body = ResponsesBody.model_validate_json(json.dumps({"input": list(items), **fields}))
    return [message.model_dump(exclude_unset=True) for message in as_chat(body).messages]


def test_items_become_the_messages_of_a_chat():
    user = {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]}
    said = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}],
    }
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{name}",
            "call_id": name,
            "name": name,
            "arguments": "{}",
            "status": "completed",
        }
        for name in ("x", "y")
    ]
    output = {"type": "function_call_output", "call_id": "x", "output": "rain"}
    chat_calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("x", "y")
    ]
    assert messages_of(user, reasoning, said, *calls, output, said, said, reasoning, instructions="be") == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "reasoning_content": "h", "content": "c", "tool_calls": chat_calls},
        {"role": "tool", "tool_call_id": "x", "content": "rain"},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": "c"},
    ]
    assert messages_of(calls[0]) == [{"role": "assistant", "tool_calls": chat_calls[:1]}]


@pytest.mark.parametrize("field", ["store", "previous_response_id"])
def test_what_needs_a_memory_is_refused(field):
    body = ResponsesBody.model_validate_json(json.dumps({"input": "a", field: True if field == "store" else "resp_1"}))
    with pytest.raises(ApiError, match="keeps no responses") as caught:
        as_chat(body)
    assert (caught.value.status, caught.value.body.param) == (400, field)


def test_instructions_come_first():
    body = ResponsesBody.model_validate_json('{"input": "a", "instructions": "b"}')
    assert as_chat(body).messages == [Message(role="system", content="b"), Message(role="user", content="a")]
