"""The server over the real engine, with a tiny random model: what only both together can get wrong."""

import asyncio
import os
import re
import signal

import openai
import pytest
from server_process import CLIENT, REAL, eventually, running_server

from legato.config.options import EngineOptions

PROMPT = "The cat sat"
GREEDY = {"temperature": 0, "extra_body": {"ignore_eos": True, "return_token_ids": True}}


@pytest.fixture(scope="module")
def real_server(tiny_model):
    options = EngineOptions(model=str(tiny_model), max_num_seqs=4, max_num_batched_tokens=64)
    with running_server(options, factory=REAL, dead_engine_grace_s=0.2) as server:
        yield server


@pytest.fixture(scope="module")
def client(real_server):
    with openai.OpenAI(base_url=f"{real_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def test_greedy_tokens_are_those_of_transformers(client, model, tiny_model):
    import torch
    from transformers import AutoModelForCausalLM

    [choice] = client.completions.create(model=model, prompt=PROMPT, max_tokens=20, **GREEDY).choices
    reference = AutoModelForCausalLM.from_pretrained(tiny_model)
    ids = torch.tensor([choice.prompt_token_ids])
    expected = reference.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert choice.token_ids == expected[0, ids.shape[1] :].tolist()


def test_the_same_seed_gives_the_same_answer_alone_and_among_others(client, model):
    def answer(n):
        made = client.completions.create(model=model, prompt=PROMPT, max_tokens=12, seed=5, n=n, extra_body=ids)
        return [choice.token_ids for choice in made.choices]

    ids = {"return_token_ids": True}
    alone, together = answer(1), answer(3)
    assert together[0] == alone[0]
    assert len({tuple(each) for each in together}) == 3


def test_guided_answers_have_their_form_in_every_spelling(client, model):
    pytest.importorskip("xgrammar")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    spellings = [
        {"guided_regex": "[0-9]{3}"},
        {"guided_choice": ["yes", "no"]},
        {"guided_grammar": 'root ::= "<" [a-c]{2} ">"'},
        {"structured_outputs": {"json": schema, "disable_any_whitespace": True}},
    ]
    patterns = ["[0-9]{3}", "yes|no", "<[a-c]{2}>", '{"a": (1|22)}']
    for extra, pattern in zip(spellings, patterns, strict=True):
        made = client.completions.create(model=model, prompt=PROMPT, max_tokens=40, seed=1, n=2, extra_body=extra)
        assert all(re.fullmatch(pattern, choice.text) for choice in made.choices)
        assert {choice.finish_reason for choice in made.choices} == {"stop"}
    hello = [{"role": "user", "content": "Hi"}]
    stream = client.chat.completions.create(
        model=model, messages=hello, max_tokens=200, seed=1, response_format=wanted, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert re.match(r'\{\s*("a"\s*(:\s*(1|22)?\s*\}?)?)?', text).end() == len(text)


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_no_text_fits_is_the_requests_fault(real_server, stream):
    pytest.importorskip("xgrammar")
    body = {"prompt": PROMPT, "guided_grammar": "root ::= x\nx ::= root", "stream": stream}
    response = CLIENT.post(f"{real_server.url}/v1/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "guided_grammar")


def test_log_probabilities_of_prompt_and_output_are_complete_and_ordered(client, model):
    extra = {"ignore_eos": True}
    [choice] = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=5, echo=True, logprobs=3, temperature=0, extra_body=extra
    ).choices
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(PROMPT) + 5
    assert logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in logprobs.token_logprobs[1:])
    for value, top in list(zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True))[len(PROMPT) :]:
        assert value == max(top.values())


def test_a_long_prompt_in_chunks_and_a_bias_are_served(client, model):
    [choice] = client.completions.create(
        model=model, prompt="long " * 40, max_tokens=3, logit_bias={"70": 100}, **GREEDY
    ).choices
    assert choice.token_ids == [70, 70, 70]


def test_ten_streams_run_on_while_an_eleventh_leaves(real_server, client, model):
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=40, **GREEDY).choices[0].token_ids

    async def read(client, leave_after=None):
        tokens = []
        stream = await client.completions.create(model=model, prompt=PROMPT, max_tokens=40, stream=True, **GREEDY)
        async for chunk in stream:
            tokens += getattr(chunk.choices[0], "token_ids", None) or []
            if leave_after is not None and len(tokens) >= leave_after:
                await stream.close()
                break
        return tokens

    async def run():
        async with openai.AsyncOpenAI(base_url=f"{real_server.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(read(client, 3), *(read(client) for _ in range(10)))

    left, *others = asyncio.run(run())
    assert left == whole[: len(left)]
    assert others == [whole] * 10
    assert eventually(lambda: "legato:num_requests_running 0.0" in metrics(real_server))
    assert eventually(lambda: "legato:kv_cache_usage_perc 0.0" in metrics(real_server))


def metrics(server):
    return CLIENT.get(f"{server.url}/metrics").text


def test_graphs_ran_and_the_server_tells_which(real_server, client, model):
    client.completions.create(model=model, prompt=PROMPT, max_tokens=5, **GREEDY)
    assert 'legato:graph_steps_total{mode="full",stage="target"}' in metrics(real_server)
    report = CLIENT.get(f"{real_server.url}/debug/graphs").json()
    assert report["catalog"]
    last = CLIENT.get(f"{real_server.url}/debug/steps?n=1").json()["steps"][0]
    assert (last["stage"], last["mode"], last["num_tokens"]) == ("target", "full", 1)


def test_a_killed_engine_ends_the_server(real_server):
    os.kill(real_server.engine_pid(), signal.SIGKILL)
    assert real_server.exit_code() == 1
