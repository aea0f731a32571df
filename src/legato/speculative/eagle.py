"""Drafting with a head of EAGLE's first two generations (arXiv 2401.15077, 2406.16858), as a chain.

As with EAGLE-3, a position's state goes with the token after it; the state is the target's final one, and the target's
own head reads what comes out. What :mod:`legato.speculative.eagle3` says of cached blocks holds here too.
"""

from collections.abc import Mapping, Sequence

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.kernels.argmax import argmax
from legato.kvcache.spec import FullAttentionSpec, LayerGroup
from legato.loading.draft_head_config import DraftHeadConfig
from legato.loading.source import ModelSource
from legato.models.build_head import build_eagle_head
from legato.models.causal_lm import CausalLM
from legato.models.eagle import EagleHead
from legato.models.sizes import module_bytes
from legato.runner.drafter import RoundRequests, RoundTokens, TokenPass
from legato.speculative.chain import chain
from legato.speculative.fit import check_fit, drafter_source, head_config
from legato.speculative.setup import DrafterPlan, DrafterSetup

ARCHITECTURES = ("LlamaForCausalLM", "EagleLlamaForCausalLM")
"""The authors' files name the family of the layers."""


class EagleDrafter:
    """Implements :class:`~legato.runner.drafter.Drafter` with a few layers of its own."""

    reads_target = False
    auxiliary_layers: tuple[int, ...] = ()

    def __init__(self, head: EagleHead, target: CausalLM, *, num_drafts: int) -> None:
        self.num_drafts = num_drafts
        self.state_size = head.config.model.hidden_size
        self._head = head
        self._embedding = head.embed_tokens or target.model.embed_tokens
        self._target = target

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return its layers behind the target's."""
        head = _head_config(drafter_source(config), target)
        first, model = target.num_layers, head.model
        with torch.device("meta"):
            skeleton = EagleHead(head, first, getattr(torch, target.dtype), torch.device("meta"))
        layers = tuple(range(first, first + model.num_layers))
        spec = FullAttentionSpec(num_kv_heads=model.num_kv_heads, head_dim=model.head_dim)
        return DrafterPlan(
            extends=True,
            layer_groups=(LayerGroup(name="drafter", layers=layers, spec=spec),),
            model=model,
            weight_bytes=module_bytes(skeleton),
        )

    @classmethod
    def build(cls, setup: DrafterSetup) -> "EagleDrafter":
        """Return the drafter with its weights; the embedding is the target's where the checkpoint has none."""
        source, target = drafter_source(setup.config), setup.target_config
        head, _ = build_eagle_head(
            source,
            _head_config(source, target),
            target.num_layers,
            setup.dtype,
            setup.device,
            seed=setup.seed,
            progress=setup.progress,
        )
        return cls(head, setup.target, num_drafts=setup.config.num_speculative_tokens)

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Do nothing: what it keeps of a request is in the cache."""

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Return the head's state after each token."""
        embedded = self._embedding(tokens.next_ids)
        following: torch.Tensor = self._head(embedded, tokens.hidden, tokens.positions, tokens.context)
        return following

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return a chain of the likeliest tokens."""
        return chain(requests, self._draft, self._advance)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return nothing: all it writes is in the cache."""
        return {}

    def _draft(self, state: torch.Tensor, out: torch.Tensor) -> None:
        argmax(self._target.compute_logits(state), out=out)

    def _advance(self, token_ids: torch.Tensor, state: torch.Tensor, places: TokenPass) -> torch.Tensor:
        following: torch.Tensor = self._head(self._embedding(token_ids), state, places.positions, places.context)
        return following


def _head_config(source: ModelSource, target: ModelConfig) -> DraftHeadConfig:
    config = head_config(source, ARCHITECTURES, target)
    # Its state is read by the target's head, so that both are of one width whatever embedding it has.
    check_fit(source, target, {"state": (config.model.hidden_size, target.hidden_size)})
    return config
