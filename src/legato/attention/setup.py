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
    drafter: ModelConfig | None = None
    """Whose layers stand in the same cache, where there are any."""
    lengths_on_host: bool = True
    """Whether the host knows every request's length when it launches a step: not where drafts are judged on the
    device."""

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """All whose layers are to be served."""
        return (self.model,) if self.drafter is None else (self.model, self.drafter)

    @property
    def largest_group(self) -> int:
        """Most query heads to a key head."""
        return max(-(-model.num_heads // model.num_kv_heads) for model in self.models)

    @property
    def largest_head_dim(self) -> int:
        """Largest head size."""
        return max(model.head_dim for model in self.models)


def check_obstacles(backend: str, obstacles: Mapping[str, str]) -> None:
    """Raise BackendError with every obstacle that has a text; an empty one stands for what is as it should be."""
    found = {name: why for name, why in obstacles.items() if why}
    if found:
        raise BackendError(f"backend {backend} cannot serve this model here", found)
