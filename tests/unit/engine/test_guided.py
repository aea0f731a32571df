"""Guided output: it always has its form, whatever else is in the batch, and nobody else's tokens change by it."""

import json
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_model
from tiny_model import write_tiny_model

from legato.config.options import EngineOptions
from legato.engine.core import EngineCore
from legato.engine.grammars import COMPILING_THREADS
from legato.engine.llm import LLM
from legato.errors import QueueFullError, RequestError
from legato.flow.guide import MAX_GUIDE_CHARACTERS, Guide
from legato.flow.request_output import RequestOutput
from legato.flow.request_update import FinishReason
from legato.flow.sampling_params import SamplingParams
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import resolve_model
from legato.observability.reasons import Reason

pytest.importorskip("xgrammar", reason="the extra legato[guided] is not installed")

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "name": {"type": "string", "maxLength": 6},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["kind", "age", "name", "tags"],
}
PATTERN = "[0-9]{2}-[a-f]{3,5}"
CHOICES = ["yes", "no", 'perhaps "é"\n']
PROMPT = "The cat sat"
BROKEN = "\ufffd"
"""Stands for bytes that are no UTF-8, which a random model over bytes makes of wide characters."""


def options(folder: Path, **changes: object) -> EngineOptions:
    given = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 160, "graph_sizes": (4, 8)}
    return EngineOptions(model=str(folder), device="cpu", **(given | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=[False, True], ids=["plain loop", "overlapped"])
def llm(folder: Path, request: pytest.FixtureRequest) -> LLM:
    return LLM(options(folder, overlap=request.param))


def guided(guide: Guide, **changes: object) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 120, "temperature": 1.0, "seed": 0, "guided": guide} | changes))


def free(**changes: object) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 24, "temperature": 1.0, "seed": 7, "ignore_eos": True} | changes))


def texts(output: RequestOutput) -> list[str]:
    return [each.text for each in output.outputs]


def records_since(llm: LLM, before: int) -> list:
    return [record for record in llm.step_records() if record.step > before]


def last_step(llm: LLM) -> int:
    records = llm.step_records()
    return records[-1].step if records else 0


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {}, {"top_k": 40, "top_p": 0.9}, {"presence_penalty": 1.0}])
def test_output_of_a_schema_is_json_that_the_schema_accepts(llm: LLM, changes: dict) -> None:
    outputs = llm.generate([PROMPT] * 4, [guided(Guide.json_schema(SCHEMA, compact=True), **changes)] * 4)
    for text in (text for output in outputs for text in texts(output)):
        value = json.loads(text)
        assert value.keys() == set(SCHEMA["properties"])
        assert value["kind"] in ("cat", "dog")
        assert 0 <= value["age"] <= 99
        assert len(value["name"]) <= 6 or BROKEN in value["name"]
        assert all(isinstance(tag, bool) for tag in value["tags"])


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 5}, "(?s).{2,5}"),
        ({"type": "string", "pattern": "^.{4}$"}, "(?s).{4}"),
        ({"type": "string", "pattern": "^[^abc]{4}$"}, "[^abc]{4}"),
        ({"type": "string", "pattern": r"^\d{2}[a-f\-]{2}\.$"}, r"\d{2}[a-f\-]{2}\."),
    ],
)
def test_strings_with_patterns_and_lengths_are_json_strings_that_match(llm: LLM, schema: dict, pattern: str) -> None:
    [output] = llm.generate(PROMPT, guided(Guide.json_schema(schema, compact=True), n=12))
    values = [json.loads(text) for text in texts(output)]
    assert all(re.fullmatch(pattern, value) for value in values if BROKEN not in value)


def test_output_of_an_expression_a_choice_and_a_grammar_has_their_form(llm: LLM) -> None:
    guides = [Guide.regex(PATTERN), Guide.choice(CHOICES), Guide.grammar('root ::= "<" [a-c]+ ">"')]
    outputs = llm.generate([PROMPT] * 3, [guided(guide, n=6) for guide in guides])
    assert all(re.fullmatch(PATTERN, text) for text in texts(outputs[0]))
    assert set(texts(outputs[1])) <= set(CHOICES)
    done = [each.text for each in outputs[2].outputs if each.finish_reason is FinishReason.STOP]
    assert done
    assert all(re.fullmatch("<[a-c]+>", text) for text in done)
    assert {each.finish_reason for each in outputs[0].outputs} == {FinishReason.STOP}


def test_an_output_cut_by_its_length_is_the_start_of_its_form(llm: LLM) -> None:
    [output] = llm.generate(PROMPT, guided(Guide.regex("[0-9]{50}"), max_tokens=9))
    assert output.outputs[0].finish_reason is FinishReason.LENGTH
    assert re.fullmatch("[0-9]{1,50}", output.outputs[0].text)


def test_free_requests_of_a_mixed_batch_get_what_they_get_alone(llm: LLM) -> None:
    kinds = [free(), free(temperature=0.0), free(top_k=5), free(repetition_penalty=1.3), free(logprobs=2)]
    alone = [llm.generate(PROMPT, params)[0].outputs[0] for params in kinds]
    for params, expected in zip(kinds, alone, strict=True):
        mixed = [guided(Guide.regex(PATTERN)), params, guided(Guide.json_schema(SCHEMA, compact=True))]
        _, output, _ = llm.generate([PROMPT] * 3, mixed)
        assert output.outputs[0].token_ids == expected.token_ids
        assert [each.token_id for each in output.outputs[0].logprobs] == [each.token_id for each in expected.logprobs]


def test_a_guided_request_gets_the_same_alone_and_among_others(llm: LLM) -> None:
    params = guided(Guide.json_schema(SCHEMA, compact=True), seed=11)
    [alone] = llm.generate(PROMPT, params)
    together = llm.generate([PROMPT] * 4, [free(), params, free(seed=9), guided(Guide.regex(PATTERN))])
    assert together[1].outputs[0].token_ids == alone.outputs[0].token_ids


def test_mixed_decodes_replay_full_graphs_and_say_why_sampling_came_after(llm: LLM) -> None:
    before = last_step(llm)
    llm.generate([PROMPT] * 3, [guided(Guide.regex("[0-9]{30}")), free(), free(temperature=0.0)])
    decodes = [record for record in records_since(llm, before) if record.num_tokens == record.num_reqs]
    reasons = {record.reason for record in decodes}
    assert {record.mode for record in decodes[1:]} == {"full"}  # the first is the last chunk of a prompt
    assert all(record.key is not None for record in decodes[1:])
    assert Reason.GUIDED_OUTPUT in reasons


def test_free_batches_sample_in_their_graphs_as_before(llm: LLM) -> None:
    llm.generate([PROMPT] * 2, [guided(Guide.regex(PATTERN)), free()])
    before = last_step(llm)
    llm.generate([PROMPT] * 2, [free(), free(temperature=0.0)])
    assert Reason.GUIDED_OUTPUT not in {record.reason for record in records_since(llm, before)}


def test_several_outputs_of_one_prompt_have_matchers_and_seeds_of_their_own(llm: LLM) -> None:
    params = guided(Guide.regex("[0-9]{8}"), n=4)
    [first], [again] = llm.generate(PROMPT, params), llm.generate(PROMPT, params)
    assert len(set(texts(first))) > 1
    assert texts(first) == texts(again)
    assert all(re.fullmatch("[0-9]{8}", text) for text in texts(first))


def test_a_stop_string_ends_a_guided_output_and_frees_its_matcher(llm: LLM) -> None:
    [output] = llm.generate(PROMPT, guided(Guide.regex("[0-9]{20}"), stop=("5",)))
    assert output.outputs[0].stop_reason in ("5", None)
    assert "5" not in output.outputs[0].text
    assert guides(llm.core).num_running == 0


def test_log_probabilities_are_the_models_own(llm: LLM) -> None:
    [output] = llm.generate(PROMPT, guided(Guide.choice(["yes"]), logprobs=3))
    chosen = output.outputs[0].logprobs
    assert len(chosen) == len(output.outputs[0].token_ids)
    assert all(each.logprob > float("-inf") for each in chosen)
    assert any(each.rank > 1 for each in chosen)  # unguided, the model would have gone on otherwise


def guides(core: EngineCore):
    return core._guides


def request_of(llm: LLM, request_id: str, params: SamplingParams):
    [request] = llm.input.process(request_id, PROMPT, params)
    return request


def test_an_abort_frees_the_matcher(llm: LLM) -> None:
    core = llm.core
    core.add(request_of(llm, "a", guided(Guide.regex("[0-9]{60}"))))
    for _ in range(4):
        core.step()
    assert guides(core).num_running == 1
    core.abort(["a"])
    assert guides(core).num_running == 0
    assert not core.has_work


def test_a_preempted_request_goes_on_where_its_grammar_was(folder: Path) -> None:
    schema = guided(Guide.json_schema(SCHEMA, compact=True), seed=3)
    roomy = LLM(options(folder))
    narrow = LLM(options(folder, block_size=4, kv_cache_memory_bytes=24 * 4 * 256, max_model_len=80, overlap=True))
    params = [replace(schema, seed=seed, max_tokens=60) for seed in range(4)]
    expected = roomy.generate([PROMPT] * 4, params)
    given = narrow.generate([PROMPT] * 4, params)
    assert narrow.stats().preemptions > 0
    assert [texts(output) for output in given] == [texts(output) for output in expected]


@pytest.mark.parametrize("policy", ["none", "piecewise", "full", "full_and_piecewise"])
def test_every_policy_gives_the_same_guided_tokens(folder: Path, policy: str, llm: LLM) -> None:
    params = [guided(Guide.json_schema(SCHEMA, compact=True)), free(), guided(Guide.regex(PATTERN), temperature=0.0)]
    expected = [output.outputs[0].token_ids for output in llm.generate([PROMPT] * 3, params)]
    other = LLM(options(folder, graph_policy=policy, graph_sizes=(4, 16, 32), overlap=True))
    assert [output.outputs[0].token_ids for output in other.generate([PROMPT] * 3, params)] == expected


def test_guided_requests_keep_their_form_beside_speculation(folder: Path, llm: LLM) -> None:
    typed = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    params = [guided(Guide.json_schema(SCHEMA, compact=True)), free(temperature=0.0), guided(Guide.regex(PATTERN))]
    expected = [output.outputs[0].token_ids for output in llm.generate([PROMPT] * 3, params)]
    drafting = LLM(options(folder, speculative_config=typed, overlap=True, graph_sizes=(4, 8, 16)))
    assert [output.outputs[0].token_ids for output in drafting.generate([PROMPT] * 3, params)] == expected
    decodes = [record for record in drafting.step_records() if record.reason is Reason.GUIDED_OUTPUT]
    assert {record.mode for record in decodes} == {"full"}


@pytest.mark.parametrize(
    ("guide", "words"),
    [
        (Guide.regex("("), "parenthesis"),
        (Guide.json_schema("{"), "JSON"),
        (Guide.json_schema("[]"), "object"),
        (Guide.json_schema({"type": "objct"}), "objct"),
        (Guide.json_schema({"type": "integer", "multipleOf": 5}), "multipleOf"),
        (Guide.json_schema({"type": "object", "properties": {"a": {"not": {}}}}), "#/properties/a: not"),
        (Guide.json_schema({"type": "integer", "minimum": 5}), "lower bound"),
        (Guide.json_schema({"type": "object", "required": ["a"]}), "'a'"),
        (Guide.json_schema({"type": "string", "pattern": '^"$'}), "JSON escapes"),
        (Guide.json_schema({"type": "string", "pattern": "^[ -~]$"}), "JSON escapes"),
        (Guide.json_schema({"type": "string", "pattern": r"^\S$"}), "JSON escapes"),
        (Guide.json_schema({"type": "string", "minLength": 1.5}), "whole number"),
        (Guide.grammar("root ::= missing"), "missing"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(llm: LLM, guide: Guide, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        llm.generate(PROMPT, guided(guide))
    assert words in str(refused.value)
    assert refused.value.param == "guided"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Guide.regex(""),
        lambda: Guide.choice([]),
        lambda: Guide.choice("yes"),
        lambda: Guide.choice(["a", ""]),
        lambda: Guide.regex("a" * (MAX_GUIDE_CHARACTERS + 1)),
        lambda: guided(Guide.regex("a"), min_tokens=1),
        lambda: guided(Guide.regex("a"), ignore_eos=True),
        lambda: guided(Guide.regex("a"), allowed_token_ids=(1,)),
    ],
)
def test_a_guide_that_says_nothing_or_contradicts_the_rest_is_refused(make) -> None:
    with pytest.raises(RequestError):
        make()


def test_requests_whose_grammar_is_compiling_are_held_counted_and_can_be_aborted(folder: Path) -> None:
    llm = LLM(options(folder, max_queue=2))
    core = llm.core
    requests = [request_of(llm, name, guided(Guide.regex(PATTERN))) for name in "abc"]
    fresh = LLM(options(folder, max_queue=2)).core  # has compiled nothing yet
    let_go = threading.Event()
    for _ in range(COMPILING_THREADS):
        guides(fresh).grammars._threads.submit(let_go.wait)
    fresh.add(requests[0])
    fresh.add(requests[1])
    assert guides(fresh).num_compiling == 2
    assert fresh.has_work
    with pytest.raises(RequestError, match="in use"):
        fresh.add(requests[0])
    with pytest.raises(QueueFullError):
        fresh.add(requests[2])
    [ended] = fresh.abort(["a"])
    assert ended.finish_reason is FinishReason.ABORT
    let_go.set()
    tokens: list[int] = []
    while fresh.has_work:
        tokens += [token for update in fresh.step() for token in update.token_ids]
    assert re.fullmatch(PATTERN, llm.tokenizer.decode(tokens))
    assert not core.has_work


def test_a_request_with_a_bad_guide_ends_with_the_reason_though_its_front_end_missed_it(folder: Path) -> None:
    llm = LLM(options(folder))
    bad = request_of(llm, "a", guided(Guide.regex(PATTERN)))
    bad = replace(bad, params=replace(bad.params, guided=Guide.regex("(")))
    updates = []
    try:
        llm.core.add(bad)
    except RequestError as error:
        assert "parenthesis" in str(error)
        return
    while llm.core.has_work:
        updates += llm.core.step()
    assert [(update.finish_reason, "parenthesis" in (update.error or "")) for update in updates] == [
        (FinishReason.ERROR, True)
    ]


def test_a_large_vocabulary_is_guided_by_its_own_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model with SmolLM2's tokenizer, whose tokens span the grammar's symbols, and rows of padding behind."""
    tokenizer = load_tokenizer(resolve_model("smollm2", "auto"))
    vocab_size = tokenizer.vocab_size + 24
    monkeypatch.setitem(tiny_model.CONFIG, "vocab_size", vocab_size)
    shapes = tiny_model.shapes
    monkeypatch.setattr(
        tiny_model,
        "shapes",
        lambda *given: {
            name: (vocab_size, *shape[1:]) if shape[0] == 300 else shape for name, shape in shapes(*given).items()
        },
    )
    write_tiny_model(tmp_path)
    tokenizer._backend.save(str(tmp_path / "tokenizer.json"))
    llm = LLM(options(tmp_path, graph_sizes=(4,)))
    guides = [Guide.json_schema(SCHEMA, compact=True), Guide.regex(PATTERN), Guide.choice(CHOICES)]
    outputs = llm.generate([PROMPT] * 3, [guided(guide) for guide in guides])
    assert json.loads(outputs[0].outputs[0].text).keys() == set(SCHEMA["properties"])
    assert re.fullmatch(PATTERN, outputs[1].outputs[0].text)
    assert outputs[2].outputs[0].text in CHOICES


def test_without_the_library_the_error_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(options(folder, graph_policy="none"))
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(RequestError, match=r"pip install 'legato\[guided\]'"):
        llm.generate(PROMPT, guided(Guide.regex("a")))


def test_a_refusal_names_the_field_of_each_request_that_has_the_guide(llm: LLM) -> None:
    for param in ("guided_regex", "structured_outputs"):
        with pytest.raises(RequestError) as refused:
            llm.generate(PROMPT, guided(Guide.regex("(a", param=param)))
        assert refused.value.param == param
