"""ModelSource -> ModelConfig, whichever file describes the model."""

from legato.config.model import ModelConfig
from legato.loading.hf_config import read_hf_config
from legato.loading.source import ModelSource


def read_model_config(source: ModelSource) -> ModelConfig:
    """Return the model's configuration. Raises ModelError or UnsupportedModelError, naming file and field."""
    if not source.is_gguf:
        return read_hf_config(source.path)
    # Imported here: the package behind it pulls in whatever tokenizer packages are installed.
    from legato.loading.gguf_config import read_gguf_config

    return read_gguf_config(source.path)
