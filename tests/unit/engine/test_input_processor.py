"""Prompts become requests; what this engine cannot serve is refused, with the parameter's name and the numbers."""

from typing import Any

import pytest
from frontend_cases import END, MAX_MODEL_LEN, START, VOCAB_SIZE, byte_tokenizer, engine_config

from legato.engine.input_processor import InputProcessor, Prompt
from legato.errors import RequestError
from legato.flow.sampling_params import SamplingParams

EOS_OF_MODEL = 299


def processor(*, seed: int = 0) -> InputProcessor:
    return InputProcessor(byte_tokenizer(), engine_config(seed=seed))


def test_text_and_its_token_ids_make_the_same_request() -> None:
    text, ids = (processor().process("r", prompt, SamplingParams(), arrival=1.0) for prompt in ("Hi", [72, 105]))
    assert text == ids
    assert text[0].prompt_token_ids == (72, 105)
    assert text[0].group is None


def test_n_outputs_are_siblings_of_one_group_with_seeds_of_their_own() -> None:
    requests = processor().process("r", "Hi", SamplingParams(n=3, seed=5))
    assert [request.request_id for request in requests] == ["r-0", "r-1", "r-2"]
    assert {request.group for request in requests} == {"r"}
    assert requests[0].seed == 5
    assert len({request.seed for request in requests}) == 3


def test_a_seed_gives_the_same_seeds_whatever_came_before() -> None:
    fresh, used = processor(seed=1), processor(seed=2)
    used.process("before", "Hi", SamplingParams(n=2))
    params = SamplingParams(n=2, seed=9)
    first, second = (p.process("r", "Hi", params, arrival=0.0) for p in (fresh, used))
    assert [request.seed for request in first] == [request.seed for request in second]


def test_requests_without_a_seed_differ_and_are_reproduced_by_the_engine_seed() -> None:
    def seeds(engine_seed: int) -> list[int]:
        p = processor(seed=engine_seed)
        return [p.process(f"r{i}", "Hi", SamplingParams())[0].seed for i in range(4)]

    assert len(set(seeds(0))) == 4
    assert seeds(0) == seeds(0)
    assert not set(seeds(0)) & set(seeds(1))


def test_a_conversation_is_written_by_the_chat_template() -> None:
    p = processor()
    prompt = p.chat_prompt([{"role": "user", "content": "Hi"}])
    assert prompt == "<start>user: Hi\n"
    ids = p.process("r", prompt, SamplingParams(), add_special_tokens=False)[0].prompt_token_ids
    assert ids[0] == START
    assert bytes(ids[1:]) == b"user: Hi\n"


def test_stop_tokens_are_the_request_s_the_model_s_and_the_tokenizer_s() -> None:
    own, ignoring = (
        processor().process("r", "Hi", SamplingParams(stop_token_ids=(3,), ignore_eos=ignore_eos))[0]
        for ignore_eos in (False, True)
    )
    assert own.stop_token_ids == {3, EOS_OF_MODEL, END}
    assert ignoring.stop_token_ids == {3}


def test_a_stop_string_that_is_a_special_token_stops_at_its_id() -> None:
    [request] = processor().process("r", "Hi", SamplingParams(stop=("<start>", "x"), ignore_eos=True))
    assert request.stop_token_ids == {START}


def test_max_tokens_left_out_fills_the_model_s_length() -> None:
    [request] = processor().process("r", [1, 2, 3], SamplingParams(max_tokens=None))
    assert request.max_tokens == MAX_MODEL_LEN - 3


def test_a_request_of_exactly_the_model_s_length_is_served() -> None:
    [request] = processor().process("r", [1] * (MAX_MODEL_LEN - 1), SamplingParams(max_tokens=1))
    assert request.max_tokens == 1


@pytest.mark.parametrize(
    ("prompt", "params", "param", "words"),
    [
        ("", {}, "prompt", ["empty"]),
        ([], {}, "prompt", ["empty"]),
        ([1, VOCAB_SIZE], {}, "prompt", [str(VOCAB_SIZE), str(VOCAB_SIZE - 1)]),
        ([-1], {}, "prompt", ["-1"]),
        ([1.5], {}, "prompt", ["neither"]),
        ([1] * MAX_MODEL_LEN, {"max_tokens": None}, "prompt", [str(MAX_MODEL_LEN), str(MAX_MODEL_LEN - 1)]),
        ([1] * 30, {"max_tokens": 11}, "max_tokens", ["30", "11", "41", "40"]),
        ("Hi", {"logprobs": 6}, "logprobs", ["6", "5"]),
        ("Hi", {"prompt_logprobs": 6}, "prompt_logprobs", ["6", "5"]),
        ("Hi", {"stop_token_ids": (300,)}, "stop_token_ids", ["300", "299"]),
        ("Hi", {"allowed_token_ids": (-5,)}, "allowed_token_ids", ["-5"]),
        ("Hi", {"logit_bias": ((300, 1.0),)}, "logit_bias", ["300"]),
        ("Hi", {"logit_bias": ((3, float("nan")),)}, "logit_bias", ["nan"]),
        ("Hi", {"bad_words_token_ids": ((3, 300),)}, "bad_words", ["300"]),
        ("Hi", {"bad_words_token_ids": ((),)}, "bad_words", ["1 to"]),
        ("Hi", {"bad_words_token_ids": ((1,),) * 1025}, "bad_words", ["1025", "1024"]),
        ("Hi", {"allowed_token_ids": (END,), "min_tokens": 2}, "allowed_token_ids", ["no token"]),
        ("Hi", {"allowed_token_ids": (7,), "bad_words_token_ids": ((7,),)}, "allowed_token_ids", ["no token"]),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    prompt: Prompt, params: dict[str, Any], param: str, words: list[str]
) -> None:
    with pytest.raises(RequestError) as error:
        processor().process("r", prompt, SamplingParams(**params))
    assert error.value.param == param
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_model_without_a_tokenizer_takes_token_ids_alone() -> None:
    bare = InputProcessor(None, engine_config())
    [request] = bare.process("r", [1, 2], SamplingParams())
    assert request.stop_token_ids == {EOS_OF_MODEL}
    for ask in (
        lambda: bare.process("r", "Hi", SamplingParams()),
        lambda: bare.process("r", [1], SamplingParams(stop=("x",))),
        lambda: bare.chat_prompt([{"role": "user", "content": "Hi"}]),
        lambda: bare.bad_words(["x"]),
    ):
        with pytest.raises(RequestError, match="no tokenizer"):
            ask()


def test_bad_words_are_tokenised_with_and_without_a_space_before() -> None:
    assert processor().bad_words(["ab", " c"]) == ((97, 98), (32, 97, 98), (32, 99))


def test_a_blank_bad_word_is_refused() -> None:
    with pytest.raises(RequestError, match="blank"):
        processor().bad_words(["a", " "])
