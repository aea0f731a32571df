"""Drafting with an EAGLE-3 head (Li et al., arXiv 2503.01840). Owns which inner states of the target it reads.

A position's state and the token after it predict the token after that: the pass over a step's tokens takes each with
the id that follows it, at the position and in the slot of the target's own token. The state of the last token that
stands then begins a chain.

The last position of a block that the prefix cache gives was computed with the token that followed in the sequence it
came from, another one perhaps. Drafts that attend to it may be worse; what stands is the target's choice all the same.
"""

from collections.abc import Mapping, Sequence

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.errors import ConfigError
from legato.kvcache.spec import FullAttentionSpec, LayerGroup
from legato.layers.embedding import Embedding
from legato.loading.draft_head_config import DraftHeadConfig
from legato.loading.source import ModelSource
from legato.models.build_head import EMBEDDING, build_eagle3_head, stored_names
from legato.models.eagle3 import NUM_AUXILIARY_LAYERS, Eagle3Head
from legato.models.sizes import module_bytes
from legato.runner.drafter import RoundRequests, RoundTokens, TokenPass
from legato.speculative.chain import chain
from legato.speculative.fit import check_fit, drafter_source, head_config
from legato.speculative.setup import DrafterPlan, DrafterSetup

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")


class Eagle3Drafter:
    """Implements :class:`~legato.runner.drafter.Drafter` with one layer of its own."""

    reads_target = False

    def __init__(
        self, head: Eagle3Head, embedding: Embedding, *, num_drafts: int, auxiliary_layers: tuple[int, ...]
    ) -> None:
        self.num_drafts = num_drafts
        self.state_size = head.config.model.hidden_size
        self.auxiliary_layers = auxiliary_layers
        self._head = head
        self._embedding = embedding

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return its layer behind the target's, and the inner states that it reads."""
        source = drafter_source(config)
        head = _head_config(source, target)
        with torch.device("meta"):
            skeleton = Eagle3Head(head, target.num_layers, getattr(torch, target.dtype), torch.device("meta"))
        spec = FullAttentionSpec(num_kv_heads=head.model.num_kv_heads, head_dim=head.model.head_dim)
        return DrafterPlan(
            extends=True,
            layer_groups=(LayerGroup(name="drafter", layers=(target.num_layers,), spec=spec),),
            auxiliary_layers=auxiliary_layers(head, target),
            model=head.model,
            weight_bytes=module_bytes(skeleton),
        )

    @classmethod
    def build(cls, setup: DrafterSetup) -> "Eagle3Drafter":
        """Return the drafter with its weights; the embedding is the target's where the checkpoint has none."""
        source, target = drafter_source(setup.config), setup.target_config
        config = _head_config(source, target)
        head, _ = build_eagle3_head(
            source,
            config,
            target.num_layers,
            setup.dtype,
            setup.device,
            seed=setup.seed,
            progress=setup.progress,
        )
        return cls(
            head,
            head.embed_tokens or setup.target.model.embed_tokens,
            num_drafts=setup.config.num_speculative_tokens,
            auxiliary_layers=auxiliary_layers(config, target),
        )

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Do nothing: what it keeps of a request is in the cache."""

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Return the head's state after each token."""
        hidden = self._head.combine(tokens.auxiliary)
        following: torch.Tensor = self._head(self._embedding, tokens.next_ids, hidden, tokens.positions, tokens.context)
        return following

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return a chain of the likeliest tokens."""
        return chain(requests, self._head.draft, self._advance)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return nothing: all it writes is in the cache."""
        return {}

    def _advance(self, token_ids: torch.Tensor, state: torch.Tensor, places: TokenPass) -> torch.Tensor:
        following: torch.Tensor = self._head(self._embedding, token_ids, state, places.positions, places.context)
        return following


def auxiliary_layers(head: DraftHeadConfig, target: ModelConfig) -> tuple[int, ...]:
    """Return the three target layers whose inputs the head reads: those it names, or a low, a middle and a high one.

    Raises ConfigError where the target does not have three such layers.
    """
    num_layers = target.num_layers
    layers = head.auxiliary_layers or (2, num_layers // 2, num_layers - 3)
    within = all(0 <= layer < num_layers for layer in layers)
    if within and len(set(layers)) == NUM_AUXILIARY_LAYERS and list(layers) == sorted(layers):
        return layers
    raise ConfigError(
        "the target does not have the layers that the drafter reads",
        {
            "drafter": f"{head.file}: inputs of layers {', '.join(map(str, layers))}",
            "target": f"{target.architecture} with {num_layers} layers",
            "expected": f"{NUM_AUXILIARY_LAYERS} different layers from 0 to {num_layers - 1}, in order",
            "options": 'another "eagle_aux_hidden_state_layer_ids" in the drafter\'s config.json',
        },
    )


def _head_config(source: ModelSource, target: ModelConfig) -> DraftHeadConfig:
    config = head_config(source, ARCHITECTURES, target)
    sides: dict[str, tuple[object, object]] = {}
    if EMBEDDING not in stored_names(source, config.model):
        sides["embedding width"] = (config.model.hidden_size, target.hidden_size)
    check_fit(source, target, sides)
    if config.model.num_layers != 1:
        raise ConfigError(
            "an EAGLE-3 head has one layer", {"drafter": config.file, "found": f"{config.model.num_layers} layers"}
        )
    return config
