"""What a user sees of runs of tokens: stop strings inside one, several outputs, a stream, the line about acceptance."""

from pathlib import Path

import pytest
import speculative_cases as cases
from tiny_model import write_tiny_model

from legato.cli.speed import acceptance_line
from legato.engine.llm import LLM
from legato.flow.request_output import RequestOutput
from legato.flow.sampling_params import SamplingParams

PROMPTS = ["ab" * 9, "the same again, the same again, ", "zzzz"]
SPECULATIVE = '{"method": "scripted", "num_speculative_tokens": 5}'
OPTIONS = {"device": "cpu", "max_num_seqs": 4, "max_model_len": 128, "kv_cache_memory_bytes": 1 << 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LLM, LLM]:
    """A plain one, and one whose drafts are right but for every fifth position."""
    plain = LLM(str(folder), **OPTIONS)
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    said = plain.generate(PROMPTS, params, use_progress=False)
    truth = [(*each.prompt_token_ids, *each.outputs[0].token_ids) for each in said]
    cases.script(monkeypatch, truth, error_period=5)
    return plain, LLM(str(folder), speculative_config=SPECULATIVE, **OPTIONS)


def shown(outputs: list[RequestOutput]) -> list[tuple[object, ...]]:
    return [
        (one.text, one.token_ids, one.finish_reason, one.stop_reason, len(one.logprobs))
        for output in outputs
        for one in output.outputs
    ]


def test_stop_strings_inside_a_run_end_the_text_where_they_do_without_drafts(engines: tuple[LLM, LLM]) -> None:
    plain, drafted = engines
    whole = plain.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=40), use_progress=False)
    stops = {output.outputs[0].text[place : place + 2] for output in whole for place in range(3, 30, 4)}
    for stop in sorted(stop for stop in stops if stop):
        params = SamplingParams(temperature=0.0, max_tokens=40, stop=(stop,), logprobs=1)
        expected = plain.generate(PROMPTS, params, use_progress=False)
        assert shown(drafted.generate(PROMPTS, params, use_progress=False)) == shown(expected), stop
    assert drafted.stats().acceptance_length > 2


def test_several_outputs_of_one_prompt_are_those_without_drafts(engines: tuple[LLM, LLM]) -> None:
    plain, drafted = engines
    params = SamplingParams(n=3, temperature=0.9, top_p=0.95, seed=11, max_tokens=17)
    expected = shown(plain.generate(PROMPTS, params, use_progress=False))
    assert shown(drafted.generate(PROMPTS, params, use_progress=False)) == expected


def test_a_stream_brings_runs_and_the_same_text(engines: tuple[LLM, LLM]) -> None:
    plain, drafted = engines
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    [expected] = plain.generate([PROMPTS[0]], params, use_progress=False)
    pieces = [delta.outputs[0] for delta in drafted.stream(PROMPTS[0], params)]
    assert "".join(piece.text for piece in pieces) == expected.outputs[0].text
    assert max(len(piece.token_ids) for piece in pieces) > 2


def test_acceptance_is_told_in_a_line(engines: tuple[LLM, LLM]) -> None:
    plain, drafted = engines
    assert acceptance_line(plain.stats()) is None
    drafted.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=20), use_progress=False)
    line = acceptance_line(drafted.stats())
    assert line is not None
    assert line.startswith(f"{drafted.stats().acceptance_length:.2f} tokens per round of drafts")
    assert len(line.split("by position ")[1].split()) == 5
