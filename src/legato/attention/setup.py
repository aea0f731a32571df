"""All that a choice of attention backend depends on, as one value. Knows no backend."""

from dataclasses import dataclass

from legato.config.model import ModelConfig
from legato.device.facts import DeviceFacts


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
