"""The official client against a server process whose engine counts: the next token is the last one plus one."""

import asyncio

import openai
import pytest


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


USER = {"role": "user", "content": "Hi"}


def test_a_completion_has_text_reason_and_usage(client):
    answer = client.completions.create(model="tiny", prompt="abc", max_tokens=4)
    assert answer.object == "text_completion"
    assert [(choice.index, choice.text, choice.finish_reason) for choice in answer.choices] == [(0, "defg", "length")]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 4, 7)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("abc", ["de", "de"]),
        (["abc", "klm"], ["de", "de", "no", "no"]),
        ([67, 68], ["de", "de"]),  # ids of "bc"
        ([[67, 68], [77]], ["de", "de", "mn", "mn"]),
    ],
)
def test_every_form_of_prompt_gives_n_choices_in_order(client, prompt, texts):
    if prompt == [[67, 68], [77]] or prompt == [67, 68]:
        ids = client.post("/../tokenize", body={"prompt": "bcl"}, cast_to=object)["tokens"]
        prompt = ids[:2] if prompt == [67, 68] else [ids[:2], ids[2:]]
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=2, n=2)
    assert [choice.text for choice in answer.choices] == texts
    assert [choice.index for choice in answer.choices] == list(range(len(texts)))


def test_a_streamed_completion_joins_to_the_whole_one_and_ends_with_its_usage(client):
    stream = client.completions.create(
        model="tiny", prompt=["abc", "klm"], max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    texts, reasons, usages = {0: "", 1: ""}, {}, []
    for chunk in stream:
        usages.append(chunk.usage)
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert texts == {0: "def", 1: "nop"}
    assert reasons == {0: "length", 1: "length"}
    assert all(usage is None for usage in usages[:-1])
    assert usages[-1].total_tokens == 12


def test_echo_gives_the_prompt_before_the_text_with_all_log_probabilities(client):
    [choice] = client.completions.create(model="tiny", prompt="abc", max_tokens=2, echo=True, logprobs=3).choices
    assert choice.text == "abcde"
    logprobs = choice.logprobs
    assert logprobs.tokens == ["a", "b", "c", "d", "e"]
    assert logprobs.text_offset == [0, 1, 2, 3, 4]
    assert logprobs.token_logprobs == [None, -0.5, -0.5, -0.5, -0.5]
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[3] == {"d": -0.5, "e": -1.5, "f": -2.5}
    streamed = list(
        client.completions.create(model="tiny", prompt="abc", max_tokens=2, echo=True, logprobs=3, stream=True)
    )
    assert "".join(chunk.choices[0].text for chunk in streamed) == "abcde"
    assert [offset for chunk in streamed for offset in chunk.choices[0].logprobs.text_offset] == [0, 1, 2, 3, 4]


def test_a_stop_string_ends_the_text_before_it_and_frees_the_slot(client, server):
    [choice] = client.completions.create(model="tiny", prompt="abc", max_tokens=200, stop=["hi"]).choices
    assert (choice.text, choice.finish_reason) == ("defg", "stop")
    assert choice.stop_reason == "hi"


def test_a_stop_token_ends_the_output_and_min_tokens_puts_it_off(client):
    [stop] = client.post("/../tokenize", body={"prompt": "e"}, cast_to=object)["tokens"]
    extra = {"stop_token_ids": [stop]}
    [choice] = client.completions.create(model="tiny", prompt="abc", max_tokens=9, extra_body=extra).choices
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("d", "stop", stop)
    extra["min_tokens"] = 9
    [choice] = client.completions.create(model="tiny", prompt="abc", max_tokens=9, extra_body=extra).choices
    assert choice.finish_reason == "length"


def test_a_chat_answer_has_a_message_with_log_probabilities(client):
    answer = client.chat.completions.create(
        model="tiny", messages=[USER], max_completion_tokens=2, n=2, logprobs=True, top_logprobs=2, seed=3
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    choice = answer.choices[0]
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert len(choice.message.content) == 2
    for token, letter in zip(choice.logprobs.content, choice.message.content, strict=True):
        assert (token.token, bytes(token.bytes).decode(), token.logprob) == (letter, letter, -0.5)
        assert [top.logprob for top in token.top_logprobs] == [-0.5, -1.5]


def test_a_chat_stream_begins_with_the_role_and_joins_to_the_whole(client):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ]
    whole = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5)
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_asynchronous_client_gets_many_answers_at_once(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

            async def stream(prompt):
                chunks = await client.completions.create(model="tiny", prompt=prompt, max_tokens=4, stream=True)
                return "".join([chunk.choices[0].text async for chunk in chunks])

            return await asyncio.gather(*(stream(letter) for letter in "abcdefghijklmnopqrst"))

    texts = asyncio.run(run())
    assert texts == [bytes(range(ord(letter) + 1, ord(letter) + 5)).decode() for letter in "abcdefghijklmnopqrst"]


def test_the_model_is_listed_and_found_by_name(client):
    [model] = client.models.list().data
    assert (model.id, model.object) == ("tiny", "model")
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_the_client_raises_the_error_that_was_meant(client):
    with pytest.raises(openai.NotFoundError, match="'gpt-4' does not exist") as caught:
        client.completions.create(model="gpt-4", prompt="abc")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.completions.create(model="tiny", prompt="abc", temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="too long"):
        client.completions.create(model="tiny", prompt="a" * 300, stream=True)
