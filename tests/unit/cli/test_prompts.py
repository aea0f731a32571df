"""The ways to type a prompt."""

import pytest

from legato.cli.prompts import chat_messages, parse_token_ids, typed_prompts
from legato.config.options import EngineOptions
from legato.errors import RequestError


def test_one_list_of_token_ids_is_one_prompt() -> None:
    assert parse_token_ids("[1, 2, 3]") == [[1, 2, 3]]


def test_a_list_of_lists_is_several_prompts() -> None:
    assert parse_token_ids("[[1, 2], [3]]") == [[1, 2], [3]]


def test_texts_come_before_token_ids() -> None:
    assert typed_prompts(["a", "b"], "[7]") == ["a", "b", [7]]


@pytest.mark.parametrize("text", ["1, 2", "[1, 2", '["a"]', "[1, [2]]", "[[1], 2]", "[1.5]", "[true]", "{}", "3"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match=r"\[1, 2, 3\]"):
        parse_token_ids(text)


def test_no_prompt_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="there is no prompt"):
        typed_prompts([], None)


def test_a_system_message_stands_before_the_question() -> None:
    assert [message["role"] for message in chat_messages("hello", "be brief")] == ["system", "user"]
    assert chat_messages("hello", None) == [{"role": "user", "content": "hello"}]


def test_an_engine_for_few_outputs_has_no_more_places_unless_the_user_said_so() -> None:
    assert EngineOptions().sized_for(3).max_num_seqs == 3
    assert EngineOptions().sized_for(17).max_num_seqs is None
    assert EngineOptions(max_num_seqs=8).sized_for(3).max_num_seqs == 8
