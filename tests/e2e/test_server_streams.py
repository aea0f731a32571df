"""Streams as they are on the wire, many at a time, and what the server tells of them."""

import asyncio
import json

import httpx
from server_process import CLIENT, KEY, eventually, running_server
from sse_reader import async_events, events
from tiny_model import CONFIG

from legato.config.options import EngineOptions

BEARER = {"Authorization": f"Bearer {KEY}"}


def test_a_plain_reader_gets_tokens_as_they_come_and_the_end(narrow_server):
    body = {"prompt": "abc", "max_tokens": 10, "stream": True}
    with CLIENT.stream("POST", f"{narrow_server.url}/v1/completions", json=body, headers=BEARER) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, last = events(response)
    assert last == ("message", "[DONE]")
    texts = [json.loads(data)["choices"][0]["text"] for name, data in chunks if name == "message"]
    assert "".join(texts) == "defghijklm"
    assert len(texts) > 3, "tokens were not sent as they came"
    assert "usage" not in json.loads(chunks[-1][1])


def test_usage_is_told_continuously_when_asked_for(narrow_server):
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": "abc", "max_tokens": 3, "stream": True, "stream_options": options}
    with CLIENT.stream("POST", f"{narrow_server.url}/v1/completions", json=body, headers=BEARER) as response:
        *chunks, _ = events(response)
    counts = [json.loads(data)["usage"]["completion_tokens"] for _, data in chunks]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == 3


def test_token_ids_are_streamed_when_asked_for(server):
    body = {"prompt": [40, 41], "max_tokens": 3, "stream": True, "return_token_ids": True, "prompt_logprobs": 1}
    with CLIENT.stream("POST", f"{server.url}/v1/completions", json=body) as response:
        choices = [json.loads(data)["choices"][0] for _, data in events(response) if data != "[DONE]"]
    assert choices[0]["prompt_token_ids"] == [40, 41]
    assert choices[0]["prompt_logprobs"][0] is None
    assert choices[0]["prompt_logprobs"][1]["41"]["rank"] == 1
    assert [token for choice in choices for token in choice.get("token_ids", [])] == [42, 43, 44]


def test_a_model_without_a_tokenizer_streams_an_event_for_each_token(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with running_server(EngineOptions(model=str(tmp_path), load_format="dummy")) as bare:
        body = {"prompt": [40], "max_tokens": 4, "stream": True}
        with CLIENT.stream("POST", f"{bare.url}/v1/completions", json=body) as response:
            choices = [json.loads(data)["choices"][0] for _, data in events(response) if data != "[DONE]"]
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [("", None)] * 3 + [("", "length")]


def test_ten_streams_run_on_while_an_eleventh_leaves(server):
    async def read(client, number, *, leave_after=None):
        body = {"prompt": [number + 50], "max_tokens": 150, "stream": True, "return_token_ids": True}
        tokens = []
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as response:
            async for _, data in async_events(response):
                if data == "[DONE]":
                    break
                tokens += json.loads(data)["choices"][0].get("token_ids", [])
                if leave_after is not None and len(tokens) >= leave_after:
                    break
        return tokens

    async def run():
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(
                read(client, 100, leave_after=3), *(read(client, number) for number in range(10))
            )

    left, *whole = asyncio.run(run())
    assert 3 <= len(left) < 150
    assert whole == [[number + 51 + each for each in range(150)] for number in range(10)]
    assert eventually(lambda: metric(server, "legato:num_requests_running") == 0)


def metric(server, name):
    """Return the value of the metric ``name``, labels included."""
    lines = CLIENT.get(f"{server.url}/metrics").text.splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.rsplit(" ", 1)[0] == name), None)


def test_the_metrics_tell_of_requests_latencies_and_graphs(server):
    name = 'legato:request_success_total{finished_reason="length"}'
    before = metric(server, name) or 0, metric(server, "legato:inter_token_latency_seconds_count") or 0
    tokens = metric(server, "legato:generation_tokens_total")
    CLIENT.post(f"{server.url}/v1/completions", json={"prompt": "abc", "max_tokens": 7})
    assert metric(server, name) == before[0] + 1
    assert metric(server, "legato:inter_token_latency_seconds_count") == before[1] + 6
    assert metric(server, "legato:generation_tokens_total") == tokens + 7
    assert metric(server, "legato:time_to_first_token_seconds_count") >= 1
    assert metric(server, "legato:e2e_request_latency_seconds_count") >= 1
    assert metric(server, 'legato:graph_steps_total{mode="full",stage="target"}') > 0
    assert metric(server, 'legato:graph_fallbacks_total{reason="sampler_variant",stage="target"}') == 3
    for plain, value in (("padding_tokens_total", 5), ("capture_seconds", 0.5), ("bytes", 4096)):
        assert metric(server, f"legato:graph_{plain}") == value
    for plain in ("num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total", "prompt_tokens_total"):
        assert metric(server, f"legato:{plain}") is not None
    for plain in ("prefix_cache_queries_total", "prefix_cache_hits_total"):
        assert metric(server, f"legato:{plain}") == 0


def test_operators_see_version_graphs_and_steps(server):
    CLIENT.post(f"{server.url}/v1/completions", json={"prompt": "abc", "max_tokens": 7})
    assert CLIENT.get(f"{server.url}/health").json() == {"status": "ok"}
    assert CLIENT.get(f"{server.url}/version").json()["version"]
    graphs = CLIENT.get(f"{server.url}/debug/graphs").json()
    assert graphs["policy"] == "full"
    assert graphs["replays"]["full 16"] > 0
    steps = CLIENT.get(f"{server.url}/debug/steps?n=3").json()["steps"]
    assert len(steps) == 3
    assert steps[0].keys() >= {"step", "stage", "requested", "mode", "reason", "key", "num_tokens_padded"}


def test_text_becomes_tokens_and_text_again(server):
    text = "Grüße, 世界 🎉"
    tokenized = CLIENT.post(f"{server.url}/tokenize", json={"prompt": text}).json()
    assert tokenized["count"] == len(tokenized["tokens"]) == len(text.encode())
    assert tokenized["max_model_len"] == 256
    assert CLIENT.post(f"{server.url}/detokenize", json={"tokens": tokenized["tokens"]}).json() == {"prompt": text}
    chat = {"messages": [{"role": "user", "content": "Hi"}], "return_token_strs": True}
    pieces = CLIENT.post(f"{server.url}/tokenize", json=chat).json()["token_strs"]
    assert "".join(pieces) == "<|start|>user\nHi<|end|>\n<|start|>assistant\n"
