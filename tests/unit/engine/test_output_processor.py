"""Updates become text: whole characters, no stop string, the right index, and nothing twice."""

from collections.abc import Sequence

import pytest
from frontend_cases import END, byte_tokenizer, engine_request
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.engine.output_processor import OutputKind, OutputProcessor
from legato.errors import RequestError
from legato.flow.request_output import CompletionOutput, RequestOutput
from legato.flow.request_update import FinishReason, RequestUpdate
from legato.flow.step_output import TokenLogprobs

TOKENIZER = byte_tokenizer()


def update(token_ids: Sequence[int] | str, finish: FinishReason | None = None, request_id: str = "r") -> RequestUpdate:
    """Return an update with these tokens, or with the bytes of a text as tokens."""
    ids = tuple(token_ids.encode()) if isinstance(token_ids, str) else tuple(token_ids)
    return RequestUpdate(request_id=request_id, token_ids=ids, finish_reason=finish)


def last_output(*updates: RequestUpdate, **params: object) -> CompletionOutput:
    """Return the cumulative output after these updates, each of a step of its own."""
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(**params)])
    outputs: list[RequestOutput] = []
    for step in updates:
        outputs += processor.process([step]).outputs
    return outputs[-1].outputs[0]


@settings(deadline=None)
@given(st.text(max_size=20), st.lists(st.integers(1, 5), max_size=30))
def test_deltas_joined_are_the_text_and_never_hold_half_a_character(text: str, sizes: list[int]) -> None:
    tokens = [*text.encode(), END]
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request()], kind=OutputKind.DELTA)
    joined, ids = "", []
    while tokens:
        size = sizes.pop() if sizes else 1
        step, tokens = tokens[:size], tokens[size:]
        [output] = processor.process([update(step, None if tokens else FinishReason.STOP)]).outputs
        joined += output.outputs[0].text
        ids += output.outputs[0].token_ids
        assert text.startswith(joined)
        assert output.finished == (not tokens)
    assert joined == text
    assert ids == [*text.encode(), END]


def test_a_character_cut_off_by_the_end_is_shown_as_a_replacement() -> None:
    assert last_output(update([72, 0xC3], FinishReason.LENGTH)).text == "H\ufffd"


def test_the_token_that_ends_an_output_is_not_part_of_its_text() -> None:
    output = last_output(update("Yes"), update(".", FinishReason.STOP))
    assert (output.text, bytes(output.token_ids)) == ("Yes", b"Yes.")


def test_a_stop_string_cuts_the_text_and_asks_for_an_abort() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(stop=("\n\n",))], kind=OutputKind.DELTA)
    first = processor.process([update("one\n")])
    assert first.outputs[0].outputs[0].text == "one"
    assert first.abort == ()
    second = processor.process([update("\ntwo")])
    [output] = second.outputs[0].outputs
    assert (output.text, output.finish_reason, output.stop_reason) == ("", FinishReason.STOP, "\n\n")
    assert bytes(output.token_ids) == b"\n", "tokens behind the stop string count as never generated"
    assert second.outputs[0].finished
    assert second.abort == ("r",)
    assert processor.process([update("late")]).outputs == ()


def test_text_held_back_for_a_stop_string_is_given_when_the_output_ends_otherwise() -> None:
    output = last_output(update("the E"), update("N", FinishReason.LENGTH), stop=("END",))
    assert (output.text, output.finish_reason) == ("the EN", FinishReason.LENGTH)


def test_a_stop_string_completed_by_the_last_token_wins_over_the_length_without_an_abort() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(stop=("ND",))])
    processed = processor.process([update("END", FinishReason.LENGTH)])
    [output] = processed.outputs[0].outputs
    assert (output.text, output.finish_reason, output.stop_reason) == ("E", FinishReason.STOP, "ND")
    assert processed.abort == ()


def test_a_stop_string_before_min_tokens_is_text() -> None:
    output = last_output(update("a.b.c"), update(".", None), stop=(".",), min_tokens=4)
    assert (output.text, output.stop_reason) == ("a.b.c", ".")


def test_outputs_of_one_request_are_merged_by_index() -> None:
    processor = OutputProcessor(TOKENIZER)
    requests = [engine_request(f"r-{index}", n=2) for index in range(2)]
    processor.add("r", requests, kind=OutputKind.CUMULATIVE)
    [output] = processor.process([update("b", None, "r-1"), update("a", None, "r-0")]).outputs
    assert [(part.index, part.text) for part in output.outputs] == [(0, "a"), (1, "b")]
    assert output.request_id == "r"
    [output] = processor.process([update("c", FinishReason.LENGTH, "r-1")]).outputs
    assert not output.finished
    [output] = processor.process([update("", FinishReason.ABORT, "r-0")]).outputs
    assert output.finished
    assert [part.finish_reason for part in output.outputs] == [FinishReason.ABORT, FinishReason.LENGTH]


def test_a_delta_holds_only_the_outputs_with_something_new() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(f"r-{index}") for index in range(3)], kind=OutputKind.DELTA)
    [output] = processor.process([update("x", None, "r-1")]).outputs
    assert [part.index for part in output.outputs] == [1]


def test_a_final_output_comes_once_when_all_have_ended() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(f"r-{index}") for index in range(2)], kind=OutputKind.FINAL)
    assert processor.process([update("a", None, "r-0"), update("b", FinishReason.LENGTH, "r-1")]).outputs == ()
    [output] = processor.process([update("c", FinishReason.LENGTH, "r-0")]).outputs
    assert [part.text for part in output.outputs] == ["ac", "b"]


def test_an_error_ends_its_output_with_the_message() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request()])
    failed = RequestUpdate(request_id="r", finish_reason=FinishReason.ERROR, error="out of luck")
    [output] = processor.process([failed]).outputs
    assert (output.finished, output.error, output.outputs[0].finish_reason) == (True, "out of luck", FinishReason.ERROR)


def logprob(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(token_id=token_id, logprob=-1.0, rank=1, top_ids=(), top_logprobs=())


def test_logprobs_follow_their_tokens_and_end_with_them() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(stop=("b",), logprobs=0)])
    step = RequestUpdate(request_id="r", token_ids=tuple(b"abc"), logprobs=tuple(map(logprob, b"abc")))
    [output] = processor.process([step]).outputs[0].outputs
    assert [entry.token_id for entry in output.logprobs] == list(b"ab")


def test_prompt_logprobs_begin_with_none_and_are_gathered_over_the_chunks() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(prompt="abc", prompt_logprobs=0)])
    chunk = RequestUpdate(request_id="r", prompt_logprobs=(logprob(98),), num_cached_tokens=1)
    assert processor.process([chunk]).outputs == ()
    done = RequestUpdate(request_id="r", prompt_logprobs=(logprob(99),), token_ids=(100,))
    [output] = processor.process([done]).outputs
    assert output.prompt_logprobs == (None, logprob(98), logprob(99))
    assert output.num_cached_tokens == 1


def test_a_forgotten_request_names_what_is_left_to_abort() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(f"r-{index}") for index in range(3)])
    processor.process([update("a", FinishReason.LENGTH, "r-1")])
    assert processor.forget("r") == ("r-0", "r-2")
    assert processor.process([update("b", None, "r-0")]).outputs == ()


def test_an_id_in_use_is_refused() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request()])
    with pytest.raises(RequestError, match="in use"):
        processor.add("r", [engine_request()])


def test_a_model_without_a_tokenizer_gives_token_ids_and_no_text() -> None:
    processor = OutputProcessor(None)
    processor.add("r", [engine_request()])
    [output] = processor.process([update("ab", FinishReason.LENGTH)]).outputs
    assert output.prompt is None
    assert (output.outputs[0].text, bytes(output.outputs[0].token_ids)) == ("", b"ab")


def test_a_prompt_of_token_ids_is_shown_as_text() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(prompt="Hé")])
    assert processor.process([update("x")]).outputs[0].prompt == "Hé"


def test_timing_tells_first_token_gaps_and_end() -> None:
    processor = OutputProcessor(TOKENIZER)
    processor.add("r", [engine_request(arrival=10.0)])
    processor.process([update("a")], now=12.0)
    processor.process([update("bc")], now=13.0)
    [timing] = processor.process([update("d", FinishReason.LENGTH)], now=13.25).timings
    assert timing.time_to_first_token_s == 2.0
    assert timing.inter_token_s == (0.5, 0.5, 0.25)
    assert timing.e2e_s == 3.25
    assert (timing.num_prompt_tokens, timing.num_output_tokens) == (2, 4)
