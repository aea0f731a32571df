"""Files of prompts are read in every shape that people have them in, and what is wrong is named with its place."""

import json
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.training.prompts import read_prompts

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def written(path: Path, *entries: object) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return path


def test_lines_of_every_shape_are_read(tmp_path):
    file = written(
        tmp_path / "prompts.jsonl",
        {"question": "one?", "answer": "1"},
        {"prompt": "two?"},
        {"turns": ["three?", "and then?"]},
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "four?"}]},
    )
    assert read_prompts([file]) == [
        (("user", "one?"),),
        (("user", "two?"),),
        (("user", "three?"),),
        (("system", "be brief"), ("user", "four?")),
    ]


def test_each_turn_of_a_user_is_a_prompt_with_what_stands_before_it(tmp_path):
    turns = [("human", "hello"), ("gpt", "hi"), ("human", "weather?"), ("function_call", "{}"), ("observation", "sun")]
    conversation = {"conversations": [{"from": role, "value": value} for role, value in turns]}
    file = tmp_path / "share.json"
    file.write_text(json.dumps([conversation]))
    first = (("user", "hello"),)
    assert read_prompts([file]) == [first, (*first, ("assistant", "hi"), ("user", "weather?"))]


def test_equal_prompts_are_one(tmp_path):
    one = written(tmp_path / "one.jsonl", {"prompt": "same"}, {"prompt": "same"}, {"prompt": "other"})
    two = written(tmp_path / "two.jsonl", {"question": "same"})
    assert [prompt[0][1] for prompt in read_prompts([one, two])] == ["same", "other"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"prompt": "good"}\n{"prompt": \n', "line 2"),
        ('{"prompt": "good"}\n\n{"prompts": "bad"}\n', "line 3: KeyError"),
        ('{"prompt": 3}\n', "line 1: TypeError"),
        ("7\n", "line 1: TypeError"),
        ('{"turns": []}\n', "line 1: IndexError"),
        ('[\n{"conversations": [{"from": "human", "value": "a"}]},\n{"conversations": [{"from": "dog"}]}]', "entry 1"),
        ('[\n{"conversations": [\n{"from": "human" "value": 1}]}]', "line 3"),
    ],
)
def test_what_is_no_prompt_is_named_with_file_and_line(text, place, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_prompts([file])
    assert str(file) in str(caught.value)
    assert place in str(caught.value)


def test_a_file_that_is_missing_or_empty_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts([tmp_path / "none.jsonl"])
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="no prompt"):
        read_prompts([tmp_path / "empty.jsonl"])


@pytest.mark.skipif(not DATA.exists(), reason="the folder of data sets is not beside the checkout")
def test_real_files_are_read():
    assert len(read_prompts([DATA / "gsm8k" / "train.jsonl"])) > 7400
    assert len(read_prompts([DATA / "mt_bench" / "question.jsonl"])) == 80
    assert len(read_prompts(sorted((DATA / "sharegpt").glob("*.json")))) > 800
