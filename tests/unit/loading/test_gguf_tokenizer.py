"""Vocabularies in GGUF metadata become the pipelines that made them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CORPUS, byte_level_metadata, sentencepiece_metadata

from legato.errors import ModelError, UnsupportedModelError
from legato.loading.gguf_tokenizer import build_gguf_tokenizer

FILE = Path("model.gguf")
SENTENCEPIECE = sentencepiece_metadata()


def build(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    return build_gguf_tokenizer(FILE, metadata)


def words(pre: str, text: str) -> list[str]:
    """The words into which a kind of vocabulary cuts a text before any merge."""
    pipeline = build(byte_level_metadata(pre)).pre_tokenizer
    return [text[start:end] for _, (start, end) in pipeline.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["a", "  ", " 1234", "'ll", " B", "!", "\n"]),
        ("default", ["a", "  ", " 1234", "'ll", " B", "!", "\n"]),
        ("smollm", ["a", "   ", "1", "2", "3", "4", "'ll", " B", "!", "\n"]),
        ("llama-bpe", ["a", "  ", " ", "123", "4", "'ll", " B", "!\n"]),
        ("qwen2", ["a", "  ", " ", "1", "2", "3", "4", "'ll", " B", "!\n"]),
    ],
)
def test_each_kind_cuts_words_in_its_own_way(pre: str, expected: list[str]) -> None:
    assert words(pre, "a   1234'll B!\n") == expected


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
@pytest.mark.parametrize("text", CORPUS)
def test_text_survives_a_round_trip(pre: str, text: str) -> None:
    tokenizer = build(byte_level_metadata(pre))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_are_one_token_each_and_only_control_ones_are_special() -> None:
    metadata = byte_level_metadata("smollm")
    tokenizer = build(metadata)
    size = len(metadata["tokenizer.ggml.tokens"])
    assert tokenizer.encode("<|start|><user defined><|end|>").ids == [size - 3, size - 1, size - 2]
    special = {token.content: token.special for token in tokenizer.get_added_tokens_decoder().values()}
    assert special == {"<|start|>": True, "<|end|>": True, "<user defined>": False}


def test_a_beginning_token_is_added_only_where_the_file_says_so() -> None:
    plain, framed = (
        build(byte_level_metadata("llama-bpe", **{"tokenizer.ggml.add_bos_token": flag})) for flag in (False, True)
    )
    bos = byte_level_metadata("llama-bpe")["tokenizer.ggml.bos_token_id"]
    assert framed.encode("hi").ids == [bos, *plain.encode("hi").ids]
    assert framed.encode("hi", add_special_tokens=False).ids == plain.encode("hi").ids


def best_score_first(text: str) -> list[str]:
    """SentencePiece's own rule, written down plainly: merge the adjacent pair whose piece has the best score."""
    tokens, types, scores = (SENTENCEPIECE[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores"))
    score = {token: value for token, kind, value in zip(tokens, types, scores, strict=True) if kind == 1}
    pieces = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        merges = [
            (-score[left + right], at) for at, (left, right) in enumerate(pairwise(pieces)) if left + right in score
        ]
        if not merges:
            return pieces
        _, at = min(merges)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abcdehinorst é中", max_size=30))
def test_sentencepiece_merges_the_best_scored_pair_first(text: str) -> None:
    assert SENTENCEPIECE_TOKENIZER.encode(text, add_special_tokens=False).tokens == best_score_first(text)


SENTENCEPIECE_TOKENIZER = build(SENTENCEPIECE)


def test_sentencepiece_spells_unknown_characters_in_bytes_and_decodes_them() -> None:
    encoded = SENTENCEPIECE_TOKENIZER.encode("the 🍌", add_special_tokens=True)
    assert encoded.tokens == ["<s>", "▁the", "▁", "<0xF0>", "<0x9F>", "<0x8D>", "<0x8C>"]
    assert SENTENCEPIECE_TOKENIZER.decode(encoded.ids) == "the 🍌"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.pre": "falcon"}, r"pre[\s\S]*falcon[\s\S]*smollm"),
        ({"tokenizer.ggml.model": "bert"}, r"model[\s\S]*bert[\s\S]*gpt2, llama"),
    ],
)
def test_an_unknown_kind_is_named_with_those_known(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        build(byte_level_metadata("smollm", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.tokens": None},
        {"tokenizer.ggml.token_type": [1, 2]},
        {"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]},
        {"tokenizer.ggml.merges": None},
        {"tokenizer.ggml.merges": ["a nothing"]},
    ],
)
def test_a_vocabulary_that_lies_is_an_error_naming_the_field(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as error:
        build(byte_level_metadata("smollm", **changes))
    assert error.value.details["field"] in ("tokenizer.ggml.tokens", *changes)
