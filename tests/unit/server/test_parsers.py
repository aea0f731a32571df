"""Parsers of messages: the same pieces however the text is cut, calls as they were written, and no text lost."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.server.parsers.pieces import Arguments, CallStart, Content, Reasoning, joined
from legato.server.parsers.registry import CALL_STYLES, MessageStyle

NAMES = frozenset({"weather", 'say "hi"'})
HERMES = MessageStyle(calls=CALL_STYLES["hermes"], thinks=True)
LLAMA = MessageStyle(calls=CALL_STYLES["llama3"], thinks=False)
STYLES = (HERMES, LLAMA, MessageStyle(calls=None, thinks=True))
FRAGMENTS = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<|python_tag|>",
    '{"name": "weather", "arguments": {"city": "Bern"}}',
    '{"parameters": {"a": "}\\"{"}, "name": "weather"}',
    '{"name": "weather", "arguments": ',
    '{"name": "unknown", "arguments": {}}',
    '{"name": ["weather"]}',
    "{",
    "}",
    '"',
    "\\",
    ";",
    "<",
    " ",
    "\n",
    "null",
    "text",
    "é",
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)


def read(style, parts, *, prompt="", names=NAMES):
    parser = style.parser(names, prompt=prompt)
    pieces = [piece for part in parts for piece in parser.add(part)]
    return joined([*pieces, *parser.finish()])


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(st.sampled_from(STYLES), TEXTS, st.lists(st.integers(0, 400), max_size=12), st.sampled_from(["", "<think>\n"]))
def test_any_cut_of_a_text_gives_the_pieces_of_the_whole(style, text, places, prompt):
    assert read(style, cut(text, places), prompt=prompt) == read(style, [text], prompt=prompt)


@given(st.sampled_from(STYLES), TEXTS)
def test_without_declared_tools_no_character_of_content_is_lost(style, text):
    pieces = read(style, [text], names=frozenset())
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    if "<think>" not in text:
        assert content == text


@given(TEXTS)
def test_text_that_names_no_declared_tool_is_content_as_it_was_written(text):
    style = MessageStyle(calls=CALL_STYLES["hermes"], thinks=False)
    assert read(style, [text], names=frozenset({"other"})) == ([Content(text)] if text else [])
    assert read(LLAMA, [text], names=frozenset({"other"})) == ([Content(text)] if text else [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


@given(st.sampled_from(["hermes", "llama3"]), st.lists(OBJECTS, min_size=1, max_size=3), st.booleans(), st.data())
def test_every_call_comes_back_with_its_name_and_arguments(kind, calls, name_last, data):
    key, name = ("arguments", "weather") if kind == "hermes" else ("parameters", 'say "hi"')
    objects = [{"name": name, key: arguments} for arguments in calls]
    if name_last:
        objects = [dict(reversed(one.items())) for one in objects]
    indent = data.draw(st.sampled_from([None, 2]))
    texts = [json.dumps(one, ensure_ascii=data.draw(st.booleans()), indent=indent) for one in objects]
    marked = [f"<tool_call>\n{text}\n</tool_call>" for text in texts]
    text = "\n".join(marked) if kind == "hermes" else "; ".join(texts)
    style = MessageStyle(calls=CALL_STYLES[kind], thinks=False)
    pieces = read(style, cut(text, data.draw(st.lists(st.integers(0, 400), max_size=8))))
    assert pieces[0::2] == [CallStart(name)] * len(calls)
    assert [json.loads(piece.text) for piece in pieces[1::2]] == calls


def test_hermes_calls_follow_text_and_white_space_around_them_is_nobodys():
    text = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"a": 1}}\n</tool_call>\n'
    assert read(HERMES, [text]) == [Content("Let me see."), CallStart("weather"), Arguments('{"a": 1}')]


def test_reasoning_content_and_a_call_of_one_message_are_told_apart():
    text = '<think>\nHm.\n\nYes.\n</think>\n\nGood.\n<tool_call>{"name": "weather"}</tool_call>'
    expected = [Reasoning("Hm.\n\nYes."), Content("Good."), CallStart("weather"), Arguments("{}")]
    assert read(HERMES, [text]) == expected


def test_reasoning_that_the_prompt_opened_needs_no_opening_mark():
    assert read(HERMES, ["so</think>\nyes"], prompt="<|assistant|><think>\n") == [Reasoning("so"), Content("yes")]
    assert read(HERMES, ["so</think>\nyes"], prompt="<|assistant|>") == [Content("so</think>\nyes")]


def test_a_message_cut_off_in_its_reasoning_or_in_a_call_keeps_what_came():
    assert read(HERMES, ["<think>so fa"]) == [Reasoning("so fa")]
    cut_off = '<tool_call>{"name": "weather", "arguments": {"city": "Be'
    assert read(HERMES, [cut_off]) == [CallStart("weather"), Arguments('{"city": "Be')]
    assert read(HERMES, ['<tool_call>{"name": "wea']) == [Content('<tool_call>{"name": "wea')]


def test_arguments_are_handed_on_before_the_call_is_complete():
    parser = HERMES.parser(NAMES, prompt="")
    assert parser.add('<tool_call>{"name": "weather"') == [CallStart("weather")]
    assert parser.add(', "arguments": {"city": "B') == [Arguments('{"city": "B')]
    assert parser.add('ern"}}</tool_call>') == [Arguments('ern"}')]


@pytest.mark.parametrize("lead", ["", " \n", "<|python_tag|>", "<|python_tag|> "])
def test_a_llama_message_is_a_call_with_and_without_its_tag(lead):
    text = lead + '{"name": "weather", "parameters": {"a": 1}}'
    assert read(LLAMA, [text]) == [CallStart("weather"), Arguments('{"a": 1}')]


def test_json_inside_a_llama_message_is_content():
    text = 'Say {"name": "weather", "parameters": {}}'
    assert read(LLAMA, [text]) == [Content(text)]


def test_arguments_given_as_a_string_are_the_json_in_it():
    text = '<tool_call>{"name": "weather", "arguments": "{\\"a\\": 1}"}</tool_call>'
    assert read(HERMES, [text]) == [CallStart("weather"), Arguments('{"a": 1}')]


def test_json_that_is_nested_beyond_all_measure_is_content():
    text = '<tool_call>{"name": ' + "[" * 50_000 + "]" * 50_000 + "}</tool_call>"
    assert read(HERMES, [text]) == [Content(text)]


def test_a_chat_template_tells_which_parsers_its_model_needs():
    def auto(template):
        style = MessageStyle.of(tool_calls="auto", reasoning="auto", template=template)
        return style.calls, style.thinks

    assert auto("{% if tools %}<tool_call>{% endif %}</think>") == (CALL_STYLES["hermes"], True)
    assert auto("Environment: ipython") == (CALL_STYLES["llama3"], False)
    assert auto("plain") == (None, False)
    asked = MessageStyle.of(tool_calls="none", reasoning="none", template="<tool_call></think>")
    assert (asked.calls, asked.thinks) == (None, False)
