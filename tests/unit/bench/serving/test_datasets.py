"""Prompts of every data set: lengths, order, seeds, and files that are not what they should be."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import tokenizers
from tiny_model import write_tokenizer
from tokenizers import models, pre_tokenizers

from legato.bench.serving.dataset_files import FILES
from legato.bench.serving.datasets import DATASETS, Dataset, DatasetSpec
from legato.bench.serving.prompt import Prompt
from legato.bench.serving.random_text import BareIds
from legato.cli import bench_serve_options
from legato.errors import ConfigError
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import ModelSource, WeightFormat
from legato.loading.tokenizer import Tokenizer

SHARED = Path(__file__).parents[5] / "shared" / "data"


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A token per byte."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "config.json").write_text("{}")
    write_tokenizer(folder)
    found = load_tokenizer(ModelSource(name="tiny", format=WeightFormat.SAFETENSORS, path=folder))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """A token per word, and one of them that falls apart."""
    names = ["[UNK]", *(f"▁{word}" for word in ("red", "green", "blue")), "▁x7"]
    backend = tokenizers.Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Replace("▁", " ")
    return Tokenizer(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)


def draw(count: int, vocabulary=None, seed: str = "0", **spec) -> list[Prompt]:
    dataset = Dataset(DatasetSpec(**spec), lambda: vocabulary or BareIds(50))
    return list(islice(dataset.prompts(seed), count))


def lines(path: Path, *values: object) -> Path:
    path.write_text("\n".join(json.dumps(value) for value in values) + "\n\n")
    return path


def test_random_ids_have_exact_lengths_and_no_special_token(letters: Tokenizer) -> None:
    prompts = draw(20, letters, input_len=40, output_len=7)
    assert {len(prompt.content) for prompt in prompts} == {40}
    assert {prompt.output_len for prompt in prompts} == {7}
    assert not any(letters.is_special(token_id) for prompt in prompts for token_id in prompt.content)
    assert len({prompt.content for prompt in prompts}) == 20


@pytest.mark.parametrize("kind", ["letters", "words"])
def test_random_words_have_exact_lengths_in_tokens(kind: str, request: pytest.FixtureRequest) -> None:
    vocabulary: Tokenizer = request.getfixturevalue(kind)
    prompts = draw(10, vocabulary, input_len=12, prefix_len=5, as_ids=False)
    assert {len(vocabulary.encode(prompt.content, add_special_tokens=False)) for prompt in prompts} == {17}
    [prefix] = {
        vocabulary.decode(vocabulary.encode(prompt.content, add_special_tokens=False)[:5]) for prompt in prompts
    }
    assert prefix
    assert "7" not in "".join(prompt.content for prompt in prompts)


def test_lengths_are_drawn_around_their_middle() -> None:
    prompts = draw(400, input_len=100, output_len=10, range_ratio=0.2)
    inputs, outputs = [len(prompt.content) for prompt in prompts], [prompt.output_len for prompt in prompts]
    assert (min(inputs), max(inputs)) == (80, 120)
    assert (min(outputs), max(outputs)) == (8, 12)
    assert sum(inputs) / 400 == pytest.approx(100, abs=2)


def test_the_same_seed_draws_the_same_prompts_and_another_one_others() -> None:
    assert draw(5, input_len=8) == draw(5, input_len=8)
    assert not {p.content for p in draw(5, input_len=8)} & {p.content for p in draw(5, input_len=8, seed="1")}


def test_every_prefix_is_asked_about_equally_often() -> None:
    spec = {"name": "prefix-repetition", "prefix_len": 6, "suffix_len": 4, "num_prefixes": 5}
    prompts = draw(50, **spec)
    assert {len(prompt.content) for prompt in prompts} == {10}
    counts = Counter(prompt.content[:6] for prompt in prompts)
    assert sorted(counts.values()) == [10] * 5
    assert len({prompt.content for prompt in prompts}) == 50


def test_a_conversation_is_its_first_question_and_the_length_of_the_answer(tmp_path: Path, letters: Tokenizer) -> None:
    def talk(*turns: tuple[str, str]) -> dict:
        return {"conversations": [{"from": source, "value": text} for source, text in turns]}

    good = talk(("system", "be good"), ("human", "question"), ("gpt", "an answer"), ("human", "more"))
    short = talk(("human", "hi"), ("gpt", "hello there"))
    long = talk(("human", "q" * 2000), ("gpt", "answer"))
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([good, short, long, talk(("gpt", "nothing asked")), {"id": 3}]))
    assert set(draw(6, letters, name="sharegpt", path=path)) == {Prompt(content="question", output_len=9)}
    fixed = draw(6, None, name="sharegpt", path=path, output_len=5)
    assert {prompt.content for prompt in fixed} == {"question", "hi", "q" * 2000}, "nothing is counted, so all stay"
    path.write_text(json.dumps([short]))
    with pytest.raises(ConfigError, match="too short or too long"):
        draw(1, letters, name="sharegpt", path=path)


def test_files_of_questions_are_read(tmp_path: Path) -> None:
    bench = lines(tmp_path / "a", {"question_id": 1, "category": "math", "turns": ["one", "two"]}, {"turns": ["three"]})
    for name in ("mt-bench", "spec-bench"):
        assert {prompt.content for prompt in draw(4, name=name, path=bench)} == {"one", "three"}
        assert draw(2, name=name, path=bench, category="math") == [Prompt(content="one", output_len=128)] * 2
    gsm8k = lines(tmp_path / "b", {"question": "1+1?", "answer": "2\n#### 2"})
    assert draw(1, name="gsm8k", path=gsm8k) == [Prompt(content="Question: 1+1?\nAnswer:", output_len=128)]
    custom = lines(tmp_path / "c", {"prompt": "a", "output_tokens": 9}, {"prompt": [1, 2]})
    drawn = draw(2, name="custom", path=custom)
    assert set(drawn) == {Prompt(content="a", output_len=9), Prompt(content=(1, 2), output_len=128)}
    assert {prompt.output_len for prompt in draw(2, name="custom", path=custom, output_len=4)} == {4}


def test_a_file_is_shuffled_by_the_seed_and_repeated_when_it_is_used_up(tmp_path: Path) -> None:
    path = lines(tmp_path / "a", *({"prompt": str(number)} for number in range(30)))
    first = [prompt.content for prompt in draw(60, name="custom", path=path)]
    assert sorted(first[:30]) == sorted(map(str, range(30))) != first[:30]
    assert first[:30] == first[30:]
    assert [prompt.content for prompt in draw(30, name="custom", path=path, seed="1")] != first[:30]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", "[]", "{", '{"other": 1}\n{"turns": 3}', "\xff\xfe"])
def test_a_file_of_another_shape_is_an_error_that_names_it(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "wrong"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        draw(1, name=name, path=path)


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    bench = lines(tmp_path / "a", {"category": "math", "turns": ["one"]})
    with pytest.raises(ConfigError, match="math"):
        draw(1, name="mt-bench", path=bench, category="art")
    with pytest.raises(ConfigError):
        draw(1, name="mt-bench", path=tmp_path / "none")
    with pytest.raises(ConfigError):
        draw(1, name="mt-bench")
    with pytest.raises(ConfigError, match="tokenizer"):
        draw(1, BareIds(10), as_ids=False)


def test_the_command_line_names_every_data_set() -> None:
    assert set(bench_serve_options.DATASETS) == set(DATASETS)


@pytest.mark.skipif(not SHARED.exists(), reason="there are no data files beside the checkout")
def test_published_files_are_read(letters: Tokenizer) -> None:
    files = {
        "gsm8k": SHARED / "gsm8k" / "test.jsonl",
        "mt-bench": SHARED / "mt_bench" / "question.jsonl",
        "sharegpt": SHARED / "sharegpt" / "fastchat_dummy_conversation.json",
    }
    for name, path in files.items():
        prompts = draw(70, letters, name=name, path=path)
        assert len({prompt.content for prompt in prompts}) > 20
        assert all(prompt.content and prompt.output_len >= 4 for prompt in prompts)
