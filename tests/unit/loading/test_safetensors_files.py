"""Shards, their index, and the ways in which they can be broken."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from legato.errors import WeightsError
from legato.loading.safetensors_weights import INDEX, safetensors_tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": torch.arange(6.0).view(2, 3)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(4, dtype=torch.bfloat16)}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(WeightsError) as error:
        list(safetensors_tensors(folder))
    assert {"file", "expected", "found"} <= error.value.details.keys()
    return str(error.value)


def test_every_shard_of_the_index_is_read(folder: Path) -> None:
    save_file({"stray": torch.ones(1)}, folder / "stray.safetensors")
    read = {tensor.name: (tensor.shape, tensor.num_bytes, tensor.load()) for tensor in safetensors_tensors(folder)}
    assert list(read) == ["a", "b"]
    assert read["a"][:2] == ((2, 3), 24)
    torch.testing.assert_close(read["a"][2], torch.arange(6.0).view(2, 3))
    assert read["b"][2].dtype == torch.bfloat16


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    assert [tensor.name for tensor in safetensors_tensors(tmp_path)] == ["a"]


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "two.safetensors").unlink()
    message = refusal(folder)
    assert "two.safetensors" in message
    assert INDEX in message


def test_a_truncated_shard_is_named_with_both_sizes(folder: Path) -> None:
    path = folder / "one.safetensors"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-5])
    message = refusal(folder)
    assert "one.safetensors" in message
    assert f"{size} bytes" in message
    assert f"{size - 5} bytes" in message


@pytest.mark.parametrize("content", [b"", b"\x05", b"\x02\x00\x00\x00\x00\x00\x00\x00[]", b"\xff" * 64])
def test_a_file_without_a_header_is_refused(content: bytes, folder: Path) -> None:
    (folder / "one.safetensors").write_bytes(content)
    assert "one.safetensors" in refusal(folder)


def test_a_tensor_that_the_index_promises_must_be_there(folder: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    (folder / INDEX).write_text(json.dumps(index))
    message = refusal(folder)
    assert "one.safetensors" in message
    assert "tensor    c" in message


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": "../one.safetensors"}}])
def test_an_index_that_is_none_is_refused(index: dict, folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps(index))
    assert "weight_map" in refusal(folder)
