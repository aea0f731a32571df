"""The tokenizer as the engine sees it, from a GGUF file and from a folder."""

import json
from pathlib import Path

import pytest
from vocabularies import byte_level_metadata, sentencepiece_metadata

from legato.errors import ModelError, ModelNotFoundError, RequestError
from legato.loading.gguf_tokenizer import build_gguf_tokenizer
from legato.loading.load_tokenizer import load_tokenizer
from legato.loading.source import ModelSource, WeightFormat, resolve_model
from legato.loading.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[3].parent / "shared" / "golden" / "golden_smollm2-135m-instruct.json"
needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason=f"no golden tokens at {GOLDEN}")


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    try:
        tokenizer = load_tokenizer(resolve_model("smollm2"))
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    assert tokenizer is not None
    return tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a tokenizer.json whose special tokens and template stand in tokenizer_config.json."""
    backend = build_gguf_tokenizer(Path("model.gguf"), byte_level_metadata("smollm"))
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": "<|start|>",
        "eos_token": {"__type": "AddedToken", "content": "<|end|>"},
        "add_bos_token": False,
        "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def load(folder: Path) -> Tokenizer:
    tokenizer = load_tokenizer(ModelSource(name="tiny", format=WeightFormat.SAFETENSORS, path=folder))
    assert tokenizer is not None
    return tokenizer


@needs_golden
def test_every_golden_prompt_has_its_golden_ids(smollm2: Tokenizer) -> None:
    for prompt in json.loads(GOLDEN.read_text())["prompts"]:
        assert smollm2.encode(prompt["text"], add_special_tokens=False) == prompt["prompt_ids"], prompt["id"]


@needs_golden
def test_every_golden_chat_has_its_golden_text(smollm2: Tokenizer) -> None:
    chats = [prompt for prompt in json.loads(GOLDEN.read_text())["prompts"] if isinstance(prompt["input"], list)]
    assert chats
    for prompt in chats:
        assert smollm2.apply_chat_template(prompt["input"]) == prompt["text"]


@needs_golden
def test_golden_texts_decode_from_golden_ids(smollm2: Tokenizer) -> None:
    for prompt in json.loads(GOLDEN.read_text())["prompts"]:
        assert smollm2.decode(prompt["prompt_ids"], skip_special_tokens=False) == prompt["text"]


def test_smollm2_splits_digits_and_knows_its_special_tokens(smollm2: Tokenizer) -> None:
    pieces = [smollm2.token_text(token_id) for token_id in smollm2.encode("a  123", add_special_tokens=True)]
    assert pieces == ["a", "  ", "1", "2", "3"]
    assert (smollm2.vocab_size, smollm2.bos_token_id, smollm2.eos_token_ids) == (49152, 1, (2,))
    assert smollm2.is_special(2)
    assert not smollm2.is_special(100)
    assert smollm2.decode([2, *smollm2.encode("hi", add_special_tokens=False), 2]) == "hi"
    assert smollm2.token_text(2) == "<|im_end|>"


def test_a_folder_is_tokenised_as_its_tokenizer_json_says(folder: Path) -> None:
    tokenizer = load(folder)
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.encode("12", add_special_tokens=True)] == [
        "1",
        "2",
    ]
    assert tokenizer.token_text(tokenizer.bos_token_id) == "<|start|>"
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.eos_token_ids] == ["<|end|>"]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]) == "<|start|>hi<|end|>"


def test_a_template_file_comes_before_the_one_in_the_config(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages | length }}")
    assert load(folder).apply_chat_template([]) == "0"


def test_of_several_templates_the_default_is_taken(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert load(folder).apply_chat_template([]) == "plain"


def test_without_a_template_a_chat_is_refused(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(RequestError, match="no chat template"):
        load(folder).apply_chat_template([{"role": "user", "content": "hi"}])


def test_a_damaged_tokenizer_file_is_an_error(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load(folder)


def test_half_a_surrogate_pair_is_the_requests_error(folder: Path) -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        load(folder).encode("a\ud83c", add_special_tokens=True)


def test_dummy_weights_have_no_tokenizer(folder: Path) -> None:
    assert load_tokenizer(ModelSource(name="tiny", format=WeightFormat.DUMMY, path=folder)) is None


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert load_tokenizer(ModelSource(name="tiny", format=WeightFormat.SAFETENSORS, path=tmp_path)) is None


def test_a_folder_of_older_files_goes_through_transformers(folder: Path) -> None:
    saved = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(saved["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in saved["merges"]))
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    tokenizer = load(folder)
    assert tokenizer.decode(tokenizer.encode("The quick fox", add_special_tokens=False)) == "The quick fox"


def test_bytes_of_sentencepiece_tokens() -> None:
    backend = build_gguf_tokenizer(Path("model.gguf"), sentencepiece_metadata())
    tokenizer = Tokenizer(backend, bos_token_id=1, eos_token_ids=(2,), chat_template=None)
    ids = tokenizer.encode("the 🍌", add_special_tokens=False)
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == " the 🍌".encode()
    assert tokenizer.token_text(1) == "<s>"
    assert tokenizer.token_bytes(10**6) == b""
