"""The GGUF container, its dequantised tensors, and the configuration in its metadata."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from legato.errors import ModelError, UnsupportedModelError, WeightsError
from legato.loading.gguf_config import read_gguf_config
from legato.loading.gguf_file import open_gguf
from legato.loading.gguf_weights import dequantise, gguf_tensors, hf_name

# What the package decodes, found out by asking it to encode or decode one block.
DECODED = [kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits]


def write(path: Path, tensors: dict[str, np.ndarray], *, arch: str = "llama", **metadata: int | float | str) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    for key, value in metadata.items():
        key = key.replace("__", ".")
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_array("some.names", ["ä", "", "b" * 300])
    writer.add_array("some.numbers", [1, 2, 3])
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


MODEL = {
    "llama__block_count": 2,
    "llama__embedding_length": 64,
    "llama__feed_forward_length": 96,
    "llama__context_length": 128,
    "llama__attention__head_count": 4,
    "llama__attention__head_count_kv": 2,
}
EMBEDDING = {"token_embd.weight": np.zeros((100, 64), dtype=np.float32)}


def config_of(path: Path, tensors: dict[str, np.ndarray] | None = None, **changes: int | float | str):
    return read_gguf_config(write(path / "model.gguf", tensors or EMBEDDING, **{**MODEL, **changes}))


def test_metadata_and_tensors_read_as_written(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    file = open_gguf(write(tmp_path / "a.gguf", {"x": values, "y": values.astype(np.float16)}, some__text="ü"))
    assert file.metadata["some.text"] == "ü"
    assert file.metadata["some.names"] == ["ä", "", "b" * 300]
    assert file.metadata["some.numbers"] == [1, 2, 3]
    assert file.tensors["x"].shape == (3, 4)
    torch.testing.assert_close(dequantise(file, file.tensors["x"]), torch.from_numpy(values))
    assert dequantise(file, file.tensors["y"]).dtype == torch.float16


@pytest.mark.parametrize("kind", DECODED, ids=lambda kind: kind.name)
def test_every_type_that_the_package_decodes_is_dequantised_as_it_does(
    kind: gguf.GGMLQuantizationType, tmp_path: Path
) -> None:
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows, blocks = 48, 3
    raw = np.random.default_rng(0).integers(0, 100, (rows, blocks * block_bytes), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("x", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(tmp_path / "a.gguf")
    values = dequantise(file, file.tensors["x"])
    assert values.shape == (rows, blocks * block_elements)
    expected = torch.from_numpy(gguf.dequantize(raw, kind).copy())
    torch.testing.assert_close(values.float(), expected, rtol=0, atol=0, equal_nan=True)


def test_a_type_that_the_package_does_not_decode_is_named(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path / "a.gguf", {"x": np.zeros((4, 4), dtype=np.int32)}))
    with pytest.raises(WeightsError, match=r"x[\s\S]*I32"):
        dequantise(file, file.tensors["x"])


@pytest.mark.parametrize("kept", [0, 3, 20, 100, 400, -1])
def test_a_file_cut_anywhere_is_an_error_that_names_it(kept: int, tmp_path: Path) -> None:
    path = write(tmp_path / "cut.gguf", {"x": np.ones((64, 64), dtype=np.float32)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WeightsError) as error:
        open_gguf(path)
    assert error.value.details["file"] == path
    assert error.value.details["expected"]
    assert error.value.details["found"]


def test_a_cut_in_the_data_names_the_tensor(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.gguf", {"x": np.ones((64, 64), dtype=np.float32)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match=r"tensor +x"):
        open_gguf(path)


def test_another_kind_of_file_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(WeightsError, match="magic"):
        open_gguf(tmp_path / "a.gguf")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    assert "x" in open_gguf(write(path, {"x": np.ones((2, 2), dtype=np.float32)})).tensors
    assert "other" in open_gguf(write(path, {"other": np.ones((2, 2), dtype=np.float32)})).tensors


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
        ("blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight"),
        ("rope_freqs.weight", "rope_freqs.weight"),
        ("blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight"),
    ],
)
def test_tensors_have_their_hugging_face_names(stored: str, expected: str) -> None:
    assert hf_name(stored) == expected


def test_only_llama_files_hold_query_and_key_rows_in_pairs(tmp_path: Path) -> None:
    rows = np.arange(64, dtype=np.float32)[:, None].repeat(64, 1)
    tensors = {**EMBEDDING, "blk.0.attn_q.weight": rows, "blk.0.attn_v.weight": rows}
    path = write(tmp_path / "llama.gguf", tensors, **MODEL)
    loaded = {tensor.stored_name: tensor for tensor in gguf_tensors(open_gguf(path), read_gguf_config(path))}
    query = loaded["blk.0.attn_q.weight"].load()[:, 0].tolist()
    assert query[:16] == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]
    assert query[16] == 16
    assert loaded["blk.0.attn_v.weight"].load()[:, 0].tolist() == list(range(64))
    qwen2 = {key.replace("llama", "qwen2"): value for key, value in MODEL.items()}
    path = write(tmp_path / "qwen2.gguf", tensors, arch="qwen2", **qwen2)
    loaded = {tensor.stored_name: tensor for tensor in gguf_tensors(open_gguf(path), read_gguf_config(path))}
    assert loaded["blk.0.attn_q.weight"].load()[:, 0].tolist() == list(range(64))


def test_the_configuration_is_complete(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, llama__rope__freq_base=5e5, tokenizer__ggml__eos_token_id=2, tokenizer__ggml__eot_token_id=7
    )
    assert (config.architecture, config.vocab_size, config.head_dim) == ("LlamaForCausalLM", 100, 16)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 4, 2)
    assert (config.rope.theta, config.rope.kind, config.eos_token_ids) == (5e5, "default", (2, 7))
    assert (config.tie_word_embeddings, config.qkv_bias) == (True, False)


def test_what_no_metadata_says_is_read_off_the_tensors(tmp_path: Path) -> None:
    vector, matrix = np.zeros(64, dtype=np.float32), np.zeros((100, 64), dtype=np.float32)
    config = config_of(tmp_path, {**EMBEDDING, "output.weight": matrix, "blk.0.attn_q.bias": vector})
    assert (config.tie_word_embeddings, config.qkv_bias) == (False, True)


def test_the_divisors_of_llama3_are_recognised(tmp_path: Path) -> None:
    theta, pairs = 5e5, 8
    wavelengths = 2 * np.pi * theta ** (np.arange(pairs) / pairs)
    smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
    divisors = (1 / ((1 - smooth) / 32 + smooth)).astype(np.float32)
    config = config_of(tmp_path, {**EMBEDDING, "rope_freqs.weight": divisors}, llama__rope__freq_base=theta)
    assert (config.rope.kind, config.rope.scaling["factor"]) == ("llama3", 32.0)
    divisors[3] *= 2
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight"):
        config_of(tmp_path, {**EMBEDDING, "rope_freqs.weight": divisors}, llama__rope__freq_base=theta)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama__attention__head_count_kv": 3}, "head_count_kv"),
        ({"llama__embedding_length": 32}, r"token_embd\.weight[\s\S]*\(100, 64\)"),
        ({"llama__block_count": 0}, "block_count"),
        ({"llama__feed_forward_length": "many"}, r"feed_forward_length[\s\S]*many"),
        ({"llama__attention__key_length": 16, "llama__attention__value_length": 8}, "key_length"),
    ],
)
def test_metadata_that_lie_are_an_error_naming_the_field(
    changes: dict[str, int | float | str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        config_of(tmp_path, **changes)


def test_other_architectures_and_experts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"gemma3[\s\S]*llama, qwen2, qwen3"):
        read_gguf_config(write(tmp_path / "a.gguf", EMBEDDING, arch="gemma3"))
    with pytest.raises(UnsupportedModelError, match="expert_count"):
        config_of(tmp_path, llama__expert_count=8)
