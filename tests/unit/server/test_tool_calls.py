"""Tool calls and reasoning through the application, as OpenAI's client sees them. The model repeats what it is told."""

import asyncio
import json

import openai
import pytest
from app_client import CALLS, REAL, serving
from tiny_model import write_tiny_model

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "time")
]
TELLING = (
    "<|start|>user\n{{ tools | length }} {{ messages[1].tool_calls[0].function.arguments.a }} "
    "{{ messages[2].content }} {{ messages[2].tool_call_id }}<|end|><|start|>assistant\n"
)
LLAMA = '{"name": "weather", "parameters": {"city": "Bern"}}'


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def run(work, model, **options):
    """Run ``work(ask, stream)`` beside a server; both take a message, and give its answer and a stream's as one."""

    async def serve():
        async with serving(model, **({"tool_call_parser": "hermes", "reasoning_parser": "think"} | options)) as client:

            async def ask(text, **fields):
                messages = [{"role": "user", "content": text}]
                fields = {"tools": TOOLS} | fields
                return await client.chat.completions.create(model="tiny", messages=messages, **fields)

            async def stream(text, **fields):
                return [chunk async for chunk in await ask(text, stream=True, **fields)]

            await work(ask, stream)

    asyncio.run(asyncio.wait_for(serve(), 240))


def assembled(chunks, index=0):
    """Join a stream's deltas as its readers do: (content, reasoning, calls, finish reason)."""
    content, reasoning, calls, finish = "", "", {}, None
    for chunk in chunks:
        for choice in (choice for choice in chunk.choices if choice.index == index):
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or ():
                if delta.index not in calls:
                    assert delta.id and delta.type == "function" and delta.function.name
                    calls[delta.index] = [delta.function.name, ""]
                else:
                    assert delta.id is None and delta.function.name is None
                calls[delta.index][1] += delta.function.arguments
    return content, reasoning, [tuple(calls[each]) for each in sorted(calls)], finish


def told(answer):
    choice = answer.choices[0]
    message = choice.message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return message.content or "", getattr(message, "reasoning_content", "") or "", calls, choice.finish_reason


def test_a_whole_answer_and_a_stream_tell_the_same_calls(model):
    async def work(ask, stream):
        answer = await ask(CALLS)
        expected = ("Look.", "Hm", [("weather", '{"city": "Bern"}'), ("time", "{}")], "tool_calls")
        assert told(answer) == expected
        ids = [call.id for call in answer.choices[0].message.tool_calls]
        assert len(set(ids)) == 2 and all(one.startswith("call_") for one in ids)
        chunks = await stream(CALLS)
        assert assembled(chunks) == expected
        pieces = [chunk for chunk in chunks if chunk.choices[0].delta.tool_calls]
        assert len(pieces) > 10, "arguments come piece by piece"
        assert assembled(await stream(CALLS, n=2), 1) == expected

    run(work, model)


def test_tools_that_are_not_to_be_called_are_not(model):
    async def work(ask, stream):
        rest = CALLS.removeprefix("<think>Hm</think>")
        assert told(await ask(CALLS, tool_choice="none")) == (rest, "Hm", [], "stop")
        assert told(await ask(CALLS, tools=openai.omit)) == (rest, "Hm", [], "stop")
        assert assembled(await stream(CALLS, tools=openai.omit)) == (rest, "Hm", [], "stop")
        one = [("weather", '{"city": "Bern"}')]
        assert told(await ask(CALLS, parallel_tool_calls=False))[2] == one
        assert assembled(await stream(CALLS, parallel_tool_calls=False))[2] == one

    run(work, model)


def test_a_tool_that_must_be_called_is_begun_in_the_prompt(model):
    named = {"type": "function", "function": {"name": "weather"}}

    async def work(ask, stream):
        text = '<tool_call>\n{"name": "weather", "arguments": {"a": 1}}\n</tool_call>'
        expected = ("", "", [("weather", '{"a": 1}')], "tool_calls")
        for choice in (named, "required"):
            answer = await ask(text, tool_choice=choice)
            assert told(answer) == expected
            assert answer.choices[0].message.content is None
            assert answer.usage.completion_tokens <= len(text) + 1 - len("<tool_call>\n")
            assert assembled(await stream(text, tool_choice=choice)) == expected
        with pytest.raises(openai.BadRequestError, match="its own form"):
            await ask(text, tool_choice=named, response_format={"type": "json_object"})
        with pytest.raises(openai.BadRequestError, match="no tool 'other'"):
            await ask(text, tool_choice={"type": "function", "function": {"name": "other"}})
        with pytest.raises(openai.BadRequestError, match="no tools to choose from"):
            await ask(text, tool_choice="required", tools=openai.omit)

    run(work, model)


def test_a_model_that_must_call_a_tool_gives_arguments_that_the_schema_accepts(model):
    """The weights are random: nothing but the guide makes a call of what they write."""
    cities = {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"]}
    hours = {"type": "object", "properties": {"hour": {"type": "boolean"}}, "required": ["hour"]}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema | {"additionalProperties": False}}}
        for name, schema in (("weather", cities), ("time", hours))
    ]
    accepted = {"weather": ({"city": "Bern"}, {"city": "Rome"}), "time": ({"hour": True}, {"hour": False})}

    async def work(ask, stream):
        fields = {"tools": tools, "max_tokens": 120, "seed": 1}
        named = {"type": "function", "function": {"name": "weather"}}
        for choice, names in ((named, {"weather"}), ("required", {"weather", "time"})):
            for temperature in (0.0, 1.0):
                answer = told(await ask("a", tool_choice=choice, temperature=temperature, **fields))
                assert answer == assembled(await stream("a", tool_choice=choice, temperature=temperature, **fields))
                [(name, arguments)] = answer[2]
                assert name in names and json.loads(arguments) in accepted[name]
                assert answer[3] == "tool_calls"

    for parser in ("hermes", "llama3"):
        run(work, model, factory=REAL, tool_call_parser=parser, reasoning_parser="none")


def test_llama_calls_are_read_where_the_option_says_so(model):
    async def work(ask, stream):
        expected = ("", "", [("weather", '{"city": "Bern"}')], "tool_calls")
        assert told(await ask(LLAMA)) == expected
        assert assembled(await stream(LLAMA)) == expected
        assert told(await ask(LLAMA, max_tokens=40))[3] == "length"

    run(work, model, tool_call_parser="llama3", reasoning_parser="none")


def test_a_model_that_is_not_known_to_call_tools_refuses_them(model):
    async def work(ask, _):
        with pytest.raises(openai.BadRequestError, match="--tool-call-parser"):
            await ask("a")
        assert told(await ask("<think>a", tools=openai.omit)) == ("<think>a", "", [], "stop")

    run(work, model, tool_call_parser="auto", reasoning_parser="auto")


def test_a_conversation_with_calls_and_their_results_reaches_the_template(tmp_path):
    model = write_tiny_model(tmp_path)
    settings = json.loads((model / "tokenizer_config.json").read_text()) | {"chat_template": TELLING}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))

    async def serve():
        async with serving(model, tool_call_parser="hermes") as client:
            call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 5}'}}
            messages = [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            ]
            answer = await client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS)
            assert answer.choices[0].message.content == "2 5 rain call_1"
            call["function"]["arguments"] = "{"
            with pytest.raises(openai.BadRequestError, match="no JSON"):
                await client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS)
            with pytest.raises(openai.BadRequestError, match="lack content"):
                await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": None}])

    asyncio.run(asyncio.wait_for(serve(), 240))


def test_bias_log_probabilities_and_several_answers_work_in_chat(model):
    async def work(ask, stream):
        answer = await ask("abc", n=3, logprobs=True, top_logprobs=2, logit_bias={"5": -100}, tools=openai.omit)
        assert [choice.message.content for choice in answer.choices] == ["abc"] * 3
        tokens = answer.choices[1].logprobs.content
        assert [token.token for token in tokens[:3]] == ["a", "b", "c"]
        assert all(len(token.top_logprobs) == 2 for token in tokens)
        chunks = await stream("abc", n=2, logprobs=True, top_logprobs=1)
        choices = [choice for chunk in chunks for choice in chunk.choices if choice.logprobs]
        shown = [token for choice in choices if choice.index == 1 for token in choice.logprobs.content]
        assert [token.token for token in shown[:3]] == ["a", "b", "c"]

    run(work, model)
