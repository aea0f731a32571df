"""Bodies to parameters, log-probabilities and errors to their spelling."""

import json

import pytest
from pydantic import ValidationError

from legato.errors import EngineDeadError, GraphError, QueueFullError, RequestError
from legato.flow.sampling_params import SamplingParams
from legato.flow.step_output import TokenLogprobs
from legato.server.errors import ApiError, api_error, invalid_body
from legato.server.extras import NEUTRAL, NO_BEARING, check_extras
from legato.server.logprobs import chat_logprobs, completion_logprobs, joined, prompt_logprobs
from legato.server.params import chat_params, completion_params
from legato.server.requests import ChatBody, CompletionBody
from legato.server.token_text import TokenText

SPELLER = TokenText(None)


def completion(**fields):
    return CompletionBody.model_validate_json(json.dumps({"prompt": "a"} | fields))


def chat(**fields):
    return ChatBody.model_validate_json(json.dumps({"messages": [{"role": "user", "content": "a"}]} | fields))


def test_fields_that_are_left_out_or_null_have_the_engines_defaults():
    assert completion_params(completion()) == SamplingParams()
    nulls = dict.fromkeys(("n", "temperature", "top_p", "stop", "logit_bias", "seed", "max_tokens", "top_k"))
    assert completion_params(completion(**nulls)) == SamplingParams()


def test_every_sampling_field_reaches_the_engine():
    fields = {
        "n": 2,
        "max_tokens": 9,
        "min_tokens": 3,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": -0.4,
        "ignore_eos": True,
        "seed": -5,
        "logprobs": 2,
        "prompt_logprobs": 4,
    }
    lists = {"stop": ["x", "y"], "stop_token_ids": [1], "allowed_token_ids": [2, 3]}
    params = completion_params(completion(**fields, **lists, logit_bias={"12": -3}))
    expected = SamplingParams(**fields, **{name: tuple(value) for name, value in lists.items()}, logit_bias=((12, -3),))
    assert params == expected


def test_one_stop_string_and_a_top_k_of_minus_one_are_read_as_meant():
    params = completion_params(completion(stop="end", top_k=-1))
    assert (params.stop, params.top_k) == (("end",), 0)


def test_echo_with_logprobs_asks_for_those_of_the_prompt_too():
    assert completion_params(completion(echo=True, logprobs=2)).prompt_logprobs == 2
    assert completion_params(completion(echo=True)).prompt_logprobs is None


def test_a_chat_answer_is_limited_by_the_newer_field_first_and_else_by_the_model():
    assert chat_params(chat(), max_logprobs=20).max_tokens is None
    assert chat_params(chat(max_tokens=5), max_logprobs=20).max_tokens == 5
    assert chat_params(chat(max_tokens=5, max_completion_tokens=6), max_logprobs=20).max_tokens == 6


def test_chat_logprobs_need_to_be_asked_for_and_within_the_limit():
    assert chat_params(chat(logprobs=True), max_logprobs=20).logprobs == 0
    assert chat_params(chat(logprobs=True, top_logprobs=3), max_logprobs=20).logprobs == 3
    assert chat_params(chat(logprobs=False), max_logprobs=20).logprobs is None
    for fields in ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": True, "top_logprobs": -1}):
        with pytest.raises(RequestError) as caught:
            chat_params(chat(**fields), max_logprobs=20)
        assert caught.value.param == "top_logprobs"


def test_extra_fields_are_accepted_by_name_or_by_neutral_value_and_else_refused():
    check_extras(dict.fromkeys(NO_BEARING, "anything"))
    check_extras(dict.fromkeys(NEUTRAL))
    for name, values in NEUTRAL.items():
        for value in values:
            check_extras({name: value})
        with pytest.raises(ApiError) as caught:
            check_extras({name: {"unusual": 1}})
        assert (caught.value.body.param, caught.value.body.code) == (name, "unsupported_value")
    with pytest.raises(ApiError) as caught:
        check_extras({"temprature": 1})
    assert (caught.value.body.param, caught.value.body.code) == ("temprature", "unknown_field")


def test_an_invalid_body_names_its_fields_once_each():
    with pytest.raises(ValidationError) as caught:
        completion(prompt=[1, "a"], n="two", stop=5)
    error = invalid_body(caught.value)
    assert (error.status, error.body.param) == (400, "stop")
    assert error.body.message.count("prompt:") == error.body.message.count("stop:") == 1


def test_a_million_wrong_items_make_one_problem():
    with pytest.raises(ValidationError) as caught:
        completion(prompt=[["a"] * 1000] * 1000)
    assert caught.value.error_count() < 10


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestError("no", param="n"), 400, None),
        (QueueFullError("full"), 503, "queue_full"),
        (EngineDeadError("dead"), 503, "engine_dead"),
        (GraphError("lost"), 500, None),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
def test_every_error_has_its_status_and_shape(error, status, code):
    told = api_error(error)
    assert (told.status, told.body.code) == (status, code)
    assert json.loads(told.json())["error"].keys() == {"message", "type", "param", "code"}
    assert "secret" not in told.body.message


def position(token_id, logprob, top):
    return TokenLogprobs(
        token_id=token_id,
        logprob=logprob,
        rank=1 + sum(value > logprob for value in top.values()),
        top_ids=tuple(top),
        top_logprobs=tuple(top.values()),
    )


def test_completion_logprobs_hold_the_chosen_token_beside_the_best():
    spelled = completion_logprobs([(1, None), (5, position(5, -3.0, {2: -0.1}))], SPELLER, offset=4)
    assert spelled.tokens == ["token_id:1", "token_id:5"]
    assert spelled.text_offset == [4, 14]
    assert spelled.token_logprobs == [None, -3.0]
    assert spelled.top_logprobs == [None, {"token_id:2": -0.1, "token_id:5": -3.0}]


def test_joining_keeps_a_part_whose_other_half_is_missing():
    part = completion_logprobs([(5, position(5, -3.0, {}))], SPELLER, offset=0)
    assert joined(None, part) is part
    assert joined(part, None) is part
    assert joined(part, part).tokens == ["token_id:5"] * 2
    assert joined(None, None) is None


def test_chat_logprobs_list_the_best_tokens_in_order():
    [token] = chat_logprobs([position(5, -3.0, {2: -0.1, 4: -0.2})], SPELLER).content
    assert (token.token, token.logprob, token.bytes) == ("token_id:5", -3.0, None)
    assert [top.token for top in token.top_logprobs] == ["token_id:2", "token_id:4"]


def test_prompt_logprobs_have_rank_and_text_by_token_id():
    first, second = prompt_logprobs([None, position(5, -3.0, {2: -0.1})], SPELLER)
    assert first is None
    assert (second[2].rank, second[5].rank, second[5].decoded_token) == (1, 2, "token_id:5")
