"""All that a choice of attention backend depends on, as one value. Knows no backend."""

from collections.abc import Mapping
from dataclasses import dataclass

from legato.config.model import ModelConfig
from legato.device.facts import DeviceFacts
from legato.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSetup:
    """What a backend is asked to serve."""

    model: ModelConfig
    device: DeviceFacts
    dtype: str
    """Of activations and cache: ``float32``, ``bfloat16`` or ``float16``."""
    block_size: int
    max_model_len: int
    max_num_seqs: int


def check_obstacles(backend: str, obstacles: Mapping[str, str]) -> None:
    """Raise BackendError with every obstacle that has a text; an empty one stands for what is as it should be."""
    found = {name: why for name, why in obstacles.items() if why}
    if found:
        raise BackendError(f"backend {backend} cannot serve this model here", found)
