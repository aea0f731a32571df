"""ModelSource -> the tensors that it stores, whichever format they are in."""

from collections.abc import Iterator
from pathlib import Path

from legato.config.model import ModelConfig
from legato.loading.safetensors_weights import safetensors_tensors
from legato.loading.source import ModelSource
from legato.loading.stored_tensor import StoredTensor

# Not weights: tables that a model computes from its configuration.
_COMPUTED = ("rotary_emb.inv_freq", "rope_freqs.weight")


def stored_tensors(source: ModelSource, config: ModelConfig) -> Iterator[StoredTensor]:
    """Yield the weights of a checkpoint under Hugging Face names; none is read before its ``load`` is called.

    An output matrix that a tied model's checkpoint holds all the same is not a weight of its own.
    """
    for tensor in _gguf_tensors(source.path, config) if source.is_gguf else safetensors_tensors(source.path):
        repeated = config.tie_word_embeddings and tensor.name == "lm_head.weight"
        if not repeated and not tensor.name.endswith(_COMPUTED):
            yield tensor


def _gguf_tensors(path: Path, config: ModelConfig) -> Iterator[StoredTensor]:
    # Imported here: the package behind it pulls in whatever tokenizer packages are installed.
    from legato.loading.gguf_file import open_gguf
    from legato.loading.gguf_weights import gguf_tensors

    return gguf_tensors(open_gguf(path), config)


def stored_bytes(source: ModelSource) -> int:
    """Return the size of the checkpoint's files, which bounds what loading reads."""
    files: list[Path] = [source.path] if source.is_gguf else list(source.path.glob("*.safetensors"))
    return sum(file.stat().st_size for file in files)
