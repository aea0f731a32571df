"""ModelSource -> Tokenizer. Owns where a folder in Hugging Face layout keeps special tokens and chat template."""

from pathlib import Path
from typing import Any

import tokenizers

from legato.errors import ModelError
from legato.loading.chat_template import ChatTemplate
from legato.loading.hf_config import read_json
from legato.loading.source import ModelSource, WeightFormat
from legato.loading.tokenizer import Tokenizer


def load_tokenizer(source: ModelSource) -> Tokenizer | None:
    """Return the model's tokenizer; None for dummy weights, and for a folder that holds none."""
    if source.format is WeightFormat.DUMMY:
        return None
    return _from_gguf(source.path) if source.is_gguf else _from_folder(source.path)


def _from_gguf(path: Path) -> Tokenizer:
    from legato.loading.gguf_file import open_gguf
    from legato.loading.gguf_tokenizer import build_gguf_tokenizer

    metadata = open_gguf(path).metadata
    backend = build_gguf_tokenizer(path, metadata)
    ids = {kind: metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos", "eot", "eom")}
    special = {
        f"{kind}_token": backend.id_to_token(token_id) or "" for kind, token_id in ids.items() if token_id is not None
    }
    template = metadata.get("tokenizer.chat_template")
    ends = (ids[kind] for kind in ("eos", "eot", "eom"))
    return Tokenizer(
        backend,
        bos_token_id=ids["bos"],
        eos_token_ids=tuple(dict.fromkeys(token_id for token_id in ends if token_id is not None)),
        chat_template=ChatTemplate(template, special) if template else None,
    )


def _from_folder(folder: Path) -> Tokenizer | None:
    backend = _backend(folder)
    if backend is None:
        return None
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.exists() else {}
    special = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in config.items()
        if name.endswith("_token") and not name.startswith("add_") and isinstance(value, (str, dict))
    }
    bos, eos = (backend.token_to_id(special[name]) if name in special else None for name in ("bos_token", "eos_token"))
    template = _template_text(folder, config)
    return Tokenizer(
        backend,
        bos_token_id=bos,
        eos_token_ids=() if eos is None else (eos,),
        chat_template=ChatTemplate(template, special) if template else None,
    )


def _backend(folder: Path) -> tokenizers.Tokenizer | None:
    """Return the pipeline of tokenizer.json as it stands there, or what transformers makes of older files.

    transformers rebuilds a pipeline from the class that the config names, and may lose steps of tokenizer.json by it,
    such as SmolLM2's splitting of digits.
    """
    path = folder / "tokenizer.json"
    if path.exists():
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception for whatever it cannot read.
            raise ModelError("tokenizer.json cannot be read", {"file": path, "found": error}) from error
    if not any((folder / name).exists() for name in ("tokenizer.model", "vocab.json", "vocab.txt")):
        return None
    from transformers import AutoTokenizer

    try:
        backend: tokenizers.Tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    except (OSError, ValueError, TypeError, ImportError, AttributeError) as error:
        raise ModelError("the tokenizer cannot be read", {"file": folder, "found": error}) from error
    return backend


def _template_text(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
