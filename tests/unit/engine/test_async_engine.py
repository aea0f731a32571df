import asyncio
import os
import threading
import time
from contextlib import aclosing
from unittest.mock import patch

import pytest
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions
from legato.engine.async_engine import TOKENISING_THREADS, AsyncLLM, Conversation
from legato.engine.output_processor import OutputKind
from legato.errors import EngineDeadError, ModelNotFoundError, RequestError
from legato.flow.request_update import FinishReason
from legato.flow.sampling_params import SamplingParams


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def with_llm(model, body, *, step_s="0.002"):
    """Run ``body(llm)`` over an engine that counts, and end the engine."""

    async def run():
        with patch.dict(os.environ, SCRIPTED_STEP_S=step_s):
            llm = await AsyncLLM.start(EngineOptions(model=str(model)), factory="scripted_core:build")
        try:
            return await asyncio.wait_for(body(llm), 120)
        finally:
            await llm.shutdown()

    return asyncio.run(run())


async def collect(llm, prompt, **params):
    return [output async for output in llm.generate(prompt, SamplingParams(**params))]


def text(outputs, index=0):
    return "".join(part.text for output in outputs for part in output.outputs if part.index == index)


async def idle_soon(llm):
    """Return whether the engine has nothing to do long before 200 tokens at the pace of these tests, ten seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        stats = await llm.stats()
        if stats.num_running == stats.num_waiting == 0:
            return True
        await asyncio.sleep(0.01)
    return False


def test_deltas_join_to_the_text_and_the_last_one_is_finished(model):
    async def body(llm):
        outputs = await collect(llm, "abc", max_tokens=5, n=2)
        assert (text(outputs, 0), text(outputs, 1)) == ("defgh", "defgh")
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        assert outputs[0].prompt == "abc"
        final = llm.generate("abc", SamplingParams(max_tokens=5), kind=OutputKind.FINAL)
        [whole] = [output async for output in final]
        assert whole.outputs[0].text == "defgh"

    with_llm(model, body)


def test_a_conversation_becomes_the_templates_prompt(model):
    async def body(llm):
        chat = Conversation(messages=[{"role": "user", "content": "Hi"}])
        outputs = await collect(llm, chat, max_tokens=1)
        assert outputs[0].prompt == "<|start|>user\nHi<|end|>\n<|start|>assistant\n"
        assert list(outputs[0].prompt_token_ids) == await llm.tokenize(chat)
        assert await llm.detokenize(outputs[0].prompt_token_ids) == outputs[0].prompt

    with_llm(model, body)


def test_closing_a_stream_aborts_its_request(model):
    async def body(llm):
        async with aclosing(llm.generate("abc", SamplingParams(max_tokens=200))) as outputs:
            await anext(outputs)
        assert await idle_soon(llm)

    with_llm(model, body, step_s="0.05")


def test_cancelling_the_reader_aborts_its_request_and_no_other(model):
    async def body(llm):
        reader = asyncio.create_task(collect(llm, "abc", max_tokens=200, n=3))
        other = asyncio.create_task(collect(llm, "abc", max_tokens=20))
        while (await llm.stats()).num_running < 4:
            await asyncio.sleep(0.01)
        reader.cancel()
        assert len(text(await other)) == 20
        assert await idle_soon(llm)

    with_llm(model, body, step_s="0.05")


def test_a_stop_string_ends_the_request_in_the_engine_too(model):
    async def body(llm):
        outputs = await collect(llm, "abc", max_tokens=200, stop=("fg",))
        assert text(outputs) == "de"
        assert outputs[-1].outputs[0].finish_reason is FinishReason.STOP
        assert await idle_soon(llm)

    with_llm(model, body, step_s="0.05")


def test_a_prompt_that_cannot_be_served_is_refused_and_a_taken_id_too(model):
    async def body(llm):
        for prompt in ("", [1000], "a" * 300):
            with pytest.raises(RequestError) as caught:
                await collect(llm, prompt)
            assert caught.value.param == "prompt"
        async with aclosing(llm.generate("abc", SamplingParams(max_tokens=200), request_id="a")) as outputs:
            await anext(outputs)
            with pytest.raises(RequestError, match="in use"):
                await anext(llm.generate("abc", SamplingParams(), request_id="a"))
            assert (await anext(outputs)).outputs, "the first request was harmed"

    with_llm(model, body, step_s="0.05")


def test_a_text_that_can_only_be_too_long_is_refused_without_tokenising_it(model):
    async def body(llm):
        llm.tokenizer.encode = None
        with pytest.raises(RequestError, match="too long"):
            await collect(llm, "ab " * 3_000_000)

    with_llm(model, body)


def test_one_timing_is_reported_per_output(model):
    async def body(llm):
        timings = []
        llm.on_timing = timings.append
        await collect(llm, "abc", max_tokens=4, n=2)
        assert [(timing.num_output_tokens, len(timing.inter_token_s)) for timing in timings] == [(4, 3), (4, 3)]
        assert all(timing.e2e_s >= timing.time_to_first_token_s > 0 for timing in timings)

    with_llm(model, body)


def test_a_dead_engine_is_an_error_for_open_and_new_requests(model):
    async def body(llm):
        open_request = asyncio.create_task(collect(llm, "abc", max_tokens=200))
        await asyncio.sleep(0.1)
        os.kill(llm.engine_pid, 9)
        with pytest.raises(EngineDeadError):
            await open_request
        await llm.wait_ended()
        assert llm.errored
        with pytest.raises(EngineDeadError):
            await collect(llm, "abc")

    with_llm(model, body, step_s="0.05")


def test_a_model_that_is_not_there_is_the_error_it_is():
    with pytest.raises(ModelNotFoundError):
        with_llm("/nowhere/at/all", None)


def test_what_still_waits_for_a_thread_at_the_end_is_told_of_it(model):
    async def body(llm):
        let_go = threading.Event()
        encode = llm.tokenizer.encode

        def encode_later(text, **options):
            let_go.wait()
            return encode(text, **options)

        llm.tokenizer.encode = encode_later
        asked = [asyncio.create_task(collect(llm, "abc")) for _ in range(TOKENISING_THREADS + 2)]
        left = asked.pop()
        await asyncio.sleep(0)
        await llm.shutdown()
        left.cancel()
        let_go.set()
        ends = await asyncio.gather(left, *asked, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert [type(end) for end in ends[1:]] == [EngineDeadError] * (TOKENISING_THREADS + 1)
        with pytest.raises(EngineDeadError):
            await llm.tokenize("abc")

    with_llm(model, body)
