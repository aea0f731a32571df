"""The engine in this process: a tiny random model, real steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from tiny_model import write_tiny_model

from legato import LLM, SamplingParams
from legato.engine.core import EngineCore
from legato.errors import LegatoError, QueueFullError, RequestError
from legato.flow.request_output import RequestOutput
from legato.flow.request_update import FinishReason, RequestUpdate

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "max_num_seqs": 4,
    "max_model_len": 128,
    "max_queue": 6,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(write_tiny_model(tmp_path_factory.mktemp("tiny"))), **SETTINGS)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(llm: LLM) -> Iterator[None]:
    yield
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used) == (0, 0, 0)
    assert not llm.core.has_work


def token_ids(outputs: list[RequestOutput]) -> list[tuple[int, ...]]:
    return [part.token_ids for output in outputs for part in output.outputs]


def joined(stream: Iterator[RequestOutput]) -> tuple[str, tuple[int, ...]]:
    """Return text and tokens of a stream's first output."""
    parts = [output.outputs[0] for output in stream]
    return "".join(part.text for part in parts), tuple(token for part in parts for token in part.token_ids)


def test_prompts_of_every_form_are_continued_in_their_order(llm: LLM) -> None:
    texts = ["one", "a longer prompt", "2"]
    ids = [list(llm.input.token_ids(text)) for text in texts]
    from_texts = llm.generate(texts, GREEDY)
    from_ids = llm.generate(ids, GREEDY)
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in (*texts, *ids)]
    assert [output.prompt for output in from_texts] == [output.prompt for output in from_ids] == texts
    assert token_ids(from_texts) == token_ids(from_ids)
    assert token_ids(alone) == token_ids(from_texts) * 2
    assert all(len(tokens) == 12 for tokens in token_ids(alone))
    assert all(output.finished and output.outputs[0].finish_reason is FinishReason.LENGTH for output in alone)


def test_a_batch_larger_than_the_queue_is_fed_as_places_come_free(llm: LLM) -> None:
    prompts = [f"prompt {number}" for number in range(20)]
    outputs = llm.generate(prompts, [SamplingParams(max_tokens=1 + number % 7, seed=1) for number in range(20)])
    assert [output.prompt for output in outputs] == prompts
    assert all(len(part.token_ids) <= 1 + number % 7 for number, part in enumerate(o.outputs[0] for o in outputs))


def test_a_stream_joined_is_what_generate_gives(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=20, temperature=0.9, ignore_eos=True)
    [whole] = llm.generate("Tell me", params)
    assert joined(llm.stream("Tell me", params)) == (whole.outputs[0].text, whole.outputs[0].token_ids)


def test_a_conversation_is_answered_after_the_template_s_text(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    [answer] = llm.chat(messages, GREEDY)
    assert answer.prompt == "<|start|>user\nHi<|end|>\n<|start|>assistant\n"
    assert token_ids(llm.chat([messages, messages], GREEDY)) == token_ids([answer]) * 2
    assert joined(llm.stream_chat(messages, GREEDY))[1] == answer.outputs[0].token_ids


def test_n_outputs_of_a_seed_differ_from_each_other_and_come_again(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=16, ignore_eos=True)
    [first] = llm.generate("Hi", params)
    [again] = llm.generate(["Hi", "something else"], params)[:1]
    assert [part.index for part in first.outputs] == [0, 1, 2]
    assert len(set(token_ids([first]))) == 3
    assert token_ids([again]) == token_ids([first])


def test_streams_that_are_open_together_each_get_their_own_tokens(llm: LLM) -> None:
    prompts = ["one", "two", "three"]
    expected = token_ids(llm.generate(prompts, GREEDY))
    streams = {prompt: llm.stream(prompt, GREEDY) for prompt in prompts}
    got: dict[str, list[int]] = {prompt: [] for prompt in prompts}
    while streams:
        for prompt, stream in list(streams.items()):
            output = next(stream, None)
            if output is None:
                del streams[prompt]
            else:
                got[prompt] += output.outputs[0].token_ids
    assert [tuple(got[prompt]) for prompt in prompts] == expected


def test_a_batch_may_run_while_a_stream_is_open(llm: LLM) -> None:
    stream = llm.stream("one", GREEDY)
    first = next(stream).outputs[0].token_ids
    llm.generate("two", GREEDY)
    assert first + joined(stream)[1] == token_ids(llm.generate("one", GREEDY))[0]


def test_a_closed_stream_frees_its_place(llm: LLM) -> None:
    stream = llm.stream("Hi", SamplingParams(max_tokens=100, ignore_eos=True))
    next(stream)
    assert llm.core.has_work
    stream.close()  # type: ignore[attr-defined]
    assert not llm.core.has_work


def test_a_stop_string_ends_an_output_and_frees_its_place(llm: LLM) -> None:
    [whole] = llm.generate("Hi", GREEDY)
    text = whole.outputs[0].text
    stop = next(char for char in text[2:] if char.isascii())
    [stopped] = llm.generate("Hi", SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop=(stop,)))
    assert stopped.outputs[0].text == text[: text.index(stop)]
    assert (stopped.outputs[0].finish_reason, stopped.outputs[0].stop_reason) == (FinishReason.STOP, stop)


def test_one_bad_prompt_is_refused_before_anything_runs(llm: LLM) -> None:
    steps = len(llm.step_records())
    with pytest.raises(RequestError) as error:
        llm.generate(["fine", [1, 999]], GREEDY)
    assert error.value.param == "prompt"
    with pytest.raises(RequestError, match="too long"):
        llm.stream([1] * 200, GREEDY)
    with pytest.raises(RequestError, match="one set of sampling parameters per prompt"):
        llm.generate(["a", "b"], [GREEDY])
    with pytest.raises(RequestError, match="empty"):
        llm.generate([], GREEDY)
    assert len(llm.step_records()) == steps


class FailsOneRequest:
    """A core over a real one that ends the first request of each batch with an error, at its third token."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def step(self) -> list[RequestUpdate]:
        updates = self._core.step()
        self._seen += 1
        if self._seen != 3:
            return updates
        failed = updates[0].request_id
        self._core.abort([failed])
        error = RequestUpdate(request_id=failed, finish_reason=FinishReason.ERROR, error="the row burnt")
        return [error, *(update for update in updates if update.request_id != failed)]


def test_an_error_in_a_running_request_does_not_lose_the_others(llm: LLM) -> None:
    expected = token_ids(llm.generate(["one", "two", "three"], GREEDY))
    failed, *others = LLM.over(FailsOneRequest(llm.core)).generate(["one", "two", "three"], GREEDY)  # type: ignore[arg-type]
    assert failed.error == "the row burnt"
    assert failed.outputs[0].finish_reason is FinishReason.ERROR
    assert failed.outputs[0].token_ids == expected[0][:2]
    assert token_ids(others) == expected[1:]


class BreaksInAStep(FailsOneRequest):
    """A core over a real one whose second step raises."""

    def step(self) -> list[RequestUpdate]:
        self._seen += 1
        if self._seen == 2:
            raise LegatoError("the device is gone")
        return self._core.step()


def test_a_step_that_raises_leaves_no_request_behind(llm: LLM) -> None:
    with pytest.raises(LegatoError, match="the device is gone"):
        LLM.over(BreaksInAStep(llm.core)).generate(["one", "two"], GREEDY)  # type: ignore[arg-type]


def test_a_full_queue_that_nothing_will_empty_is_an_error(llm: LLM) -> None:
    class AlwaysFull(FailsOneRequest):
        def add(self, request: object) -> None:
            raise QueueFullError("full")

    with pytest.raises(QueueFullError):
        LLM.over(AlwaysFull(llm.core)).generate("one", GREEDY)  # type: ignore[arg-type]


def test_reports_tell_what_ran(llm: LLM) -> None:
    llm.generate("Hi", GREEDY)
    assert llm.stats().generation_tokens >= 12
    assert llm.step_records()[-1].stage == "target"
    assert llm.graph_report()["policy"]
