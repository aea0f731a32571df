"""What a drafter is planned and built from, and what it says of itself before anything is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.kvcache.spec import LayerGroup
from legato.models.causal_lm import CausalLM
from legato.runner.drafter import Drafter


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterPlan:
    """What the engine must know of a drafter before it allocates anything."""

    extends: bool = False
    """Whether the drafter has a pass over the step's tokens: then its ``state_size`` is not 0."""
    layer_groups: tuple[LayerGroup, ...] = ()
    """The drafter's own attention layers, numbered from the target's ``num_layers`` on. They are stored with the
    target's: the same blocks, one more set of layers."""
    auxiliary_layers: tuple[int, ...] = ()
    """Target layers of which the drafter wants the residual as it goes in."""
    model: ModelConfig | None = None
    """The form of its layers; None: it has none."""
    weight_bytes: int = 0
    """Of weights that are the drafter's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSetup:
    """What a drafter is built over."""

    config: SpeculativeConfig
    target_config: ModelConfig
    target: CausalLM
    """For what the two share: embedding and head."""
    dtype: torch.dtype
    device: torch.device
    max_num_seqs: int
    max_model_len: int
    seed: int
    """Of dummy weights."""
    progress: Callable[[int, int], None]
    """Told (bytes read, bytes in all)."""


class DrafterClass(Protocol):
    """What a line of the registry names."""

    reads_target: bool
    """Whether the drafter's weights are in the target's own checkpoint."""

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return what the drafter will need, from configuration files alone.

        Raises ConfigError or ModelError, naming both sides, where it does not fit the target.
        """
        ...

    @classmethod
    def build(cls, setup: DrafterSetup) -> Drafter:
        """Return the drafter with its weights, on the device."""
        ...
