"""Streamed text: whole characters only, and together exactly the text of all tokens."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import byte_level_metadata, sentencepiece_metadata

from legato.loading.detokenizer import IncrementalDetokenizer
from legato.loading.gguf_tokenizer import build_gguf_tokenizer
from legato.loading.tokenizer import Tokenizer


def tokenizer_of(metadata: dict[str, object]) -> Tokenizer:
    backend = build_gguf_tokenizer(Path("model.gguf"), metadata)
    return Tokenizer(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)


TOKENIZERS = {
    "byte-level": tokenizer_of(byte_level_metadata("smollm")),
    "sentencepiece": tokenizer_of(sentencepiece_metadata()),
    "sentencepiece, no space in front": tokenizer_of(
        sentencepiece_metadata(**{"tokenizer.ggml.add_space_prefix": False})
    ),
}
every_kind = pytest.mark.parametrize("kind", TOKENIZERS)


def pieces_of(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer)
    return [*(detokenizer.add([token_id]) for token_id in token_ids), detokenizer.finish()]


@every_kind
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_pieces_join_to_the_text_of_any_tokens_at_all(kind: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=25))
    assert "".join(pieces_of(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@every_kind
@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("the in é中国🍌👩‍🚀ß\n "), max_size=20))
def test_no_piece_of_a_real_text_holds_a_replacement_character(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    pieces = pieces_of(tokenizer, tokenizer.encode(text, add_special_tokens=False))
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == text


def test_text_comes_out_as_soon_as_it_is_certain() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    token_ids = tokenizer.encode("x é!", add_special_tokens=False)
    pieces = pieces_of(tokenizer, token_ids)
    assert pieces[0] == "x"
    assert pieces[-1] == ""


def test_a_character_cut_off_at_the_end_appears_as_a_replacement_when_finished() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    token_ids = tokenizer.encode("a🍌", add_special_tokens=False)[:-1]
    assert pieces_of(tokenizer, token_ids)[-1] == "\ufffd" * 3


@every_kind
def test_a_token_costs_the_same_however_long_the_output_is(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    token_ids = tokenizer.encode("the there inter on ", add_special_tokens=False) * 1500
    detokenizer = IncrementalDetokenizer(tokenizer)
    quarter = len(token_ids) // 4
    spans = []
    for begin in (0, 3 * quarter):
        started = time.process_time()
        detokenizer.add(token_ids[begin : begin + quarter])
        spans.append(time.process_time() - started)
    assert spans[1] < 4 * spans[0] + 0.05
