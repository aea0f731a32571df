"""Drafting with a smaller language model of the same vocabulary (Leviathan et al., arXiv 2211.17192).

It is fed what the target is fed, at the same positions and in slots of the same blocks; then one pass for each draft,
the first with the token that the target has chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.kernels.argmax import argmax
from legato.loading.model_config import read_model_config
from legato.loading.source import ModelSource
from legato.models.build import build_model
from legato.models.causal_lm import CausalLM
from legato.models.registry import model_class
from legato.models.sizes import module_bytes
from legato.runner.drafter import RoundRequests, RoundTokens
from legato.speculative.chain import room_for_drafts
from legato.speculative.fit import check_fit, drafter_source, with_positions_of
from legato.speculative.setup import DrafterPlan, DrafterSetup


class DraftModelDrafter:
    """Implements :class:`~legato.runner.drafter.Drafter` with all layers of a model."""

    reads_target = False
    state_size = 1
    """Nothing is handed on, but for the sign that there is a pass over the step's tokens."""
    auxiliary_layers: tuple[int, ...] = ()

    def __init__(self, model: CausalLM, *, num_drafts: int) -> None:
        """``model``: its attention layers are numbered behind the target's."""
        self.num_drafts = num_drafts
        self._model = model

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return the model's layers behind the target's."""
        model = _model_config(drafter_source(config), target)
        family, first = model_class(model.architecture), target.num_layers
        with torch.device("meta"):
            skeleton = family(model, getattr(torch, target.dtype), torch.device("meta"))
        groups = tuple(
            replace(group, name=f"drafter {group.name}", layers=tuple(first + layer for layer in group.layers))
            for group in family.layer_groups(model)
        )
        return DrafterPlan(extends=True, layer_groups=groups, model=model, weight_bytes=module_bytes(skeleton))

    @classmethod
    def build(cls, setup: DrafterSetup) -> "DraftModelDrafter":
        """Return the drafter with its weights."""
        source = drafter_source(setup.config)
        config = _model_config(source, setup.target_config)
        model, _ = build_model(source, config, setup.dtype, setup.device, seed=setup.seed, progress=setup.progress)
        model.number_layers_from(setup.target_config.num_layers)
        return cls(model, num_drafts=setup.config.num_speculative_tokens)

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Do nothing: what it keeps of a request is in the cache."""

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Store keys and values of the target's own tokens."""
        hidden: torch.Tensor = self._model(tokens.input_ids, tokens.positions, tokens.context)
        return hidden[:, : self.state_size]

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return the likeliest tokens, each after a pass over the one before it."""
        token_ids, drafts = requests.next_tokens, room_for_drafts(requests)
        for index in range(requests.num_drafts):
            places = requests.token_pass(index)
            hidden = self._model(token_ids, places.positions, places.context)
            token_ids = argmax(self._model.compute_logits(hidden), out=drafts[index])
        return drafts.t()

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return nothing: all it writes is in the cache."""
        return {}


def _model_config(source: ModelSource, target: ModelConfig) -> ModelConfig:
    config = read_model_config(source)
    check_fit(source, target, {"vocabulary": (config.vocab_size, target.vocab_size)})
    return with_positions_of(config, target)
