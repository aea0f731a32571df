"""Drafting with a model's own modules for multi-token prediction (arXiv 2412.19437, section 2.2), as a chain.

Module ``m`` makes draft ``m + 1`` of a round; drafts beyond the last module are made by that one, from its own state.
In the cache a state of depth ``m`` stands where its token does, ``m`` places further than the position whose hidden
state it goes back to, so that every module is fed the step's tokens with the ids that follow them. What module ``m``
reads beside a token is the state of depth ``m`` one place before; for a step's first token that is kept by row.

The first place after cached blocks has no such state: it begins with zeros, as a sequence does. Like the last position
of such a block, that only makes drafts worse; see :mod:`legato.speculative.eagle3`.
"""

from collections.abc import Mapping, Sequence

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.errors import ConfigError
from legato.kernels.argmax import argmax
from legato.kvcache.spec import LayerGroup
from legato.models.build_head import build_mtp_modules
from legato.models.causal_lm import CausalLM
from legato.models.mtp import MtpModules
from legato.models.registry import model_class
from legato.models.sizes import module_bytes
from legato.runner.drafter import RoundRequests, RoundTokens, TokenPass, TokenPlaces
from legato.speculative.chain import room_for_drafts
from legato.speculative.fit import drafter_source
from legato.speculative.setup import DrafterPlan, DrafterSetup


class MtpDrafter:
    """Implements :class:`~legato.runner.drafter.Drafter` with one layer for each module."""

    reads_target = True
    auxiliary_layers: tuple[int, ...] = ()

    def __init__(self, modules: MtpModules, target: CausalLM, *, num_drafts: int, max_num_seqs: int) -> None:
        size, weight = target.config.hidden_size, target.model.embed_tokens.weight
        self.num_drafts = num_drafts
        self._num_used = min(len(modules), num_drafts)
        self.state_size = self._num_used * size
        self._size = size
        self._modules = modules
        self._target = target
        rows = max_num_seqs + 1 if self._num_used > 1 else 0
        self._before = torch.zeros(rows, self.state_size, dtype=weight.dtype, device=weight.device)

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return the modules' layers, which keep what the target's last layer does."""
        if target.num_mtp_modules == 0:
            raise ConfigError(
                "the target has no modules for multi-token prediction",
                {
                    "requested": f'--speculative-config with "method": "{config.method}"',
                    "found": f"{target.architecture} without num_nextn_predict_layers in its config.json",
                    "options": "another method",
                },
            )
        family, first = model_class(target.architecture), target.num_layers
        with torch.device("meta"):
            dtype = getattr(torch, target.dtype)
            skeleton = MtpModules(family.attention, target, dtype, torch.device("meta"))
        last = next(group for group in family.layer_groups(target) if first - 1 in group.layers)
        layers = tuple(range(first, first + target.num_mtp_modules))
        return DrafterPlan(
            extends=True,
            layer_groups=(LayerGroup(name="drafter", layers=layers, spec=last.spec),),
            model=target,
            weight_bytes=module_bytes(skeleton),
        )

    @classmethod
    def build(cls, setup: DrafterSetup) -> "MtpDrafter":
        """Return the drafter with the modules' weights, from the target's own checkpoint."""
        modules, _ = build_mtp_modules(
            drafter_source(setup.config),
            setup.target_config,
            setup.dtype,
            setup.device,
            seed=setup.seed,
            progress=setup.progress,
        )
        return cls(
            modules,
            setup.target,
            num_drafts=setup.config.num_speculative_tokens,
            max_num_seqs=setup.max_num_seqs,
        )

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Begin with zeros before the row's first token."""
        if self._before.shape[0]:
            self._before[row].zero_()

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Return the states of all depths at each token, side by side."""
        embedded = self._target.model.embed_tokens(tokens.next_ids)
        states: list[torch.Tensor] = [self._modules(0, embedded, tokens.hidden, tokens.positions, tokens.context)]
        places = tokens.places() if self._num_used > 1 else None
        for depth in range(1, self._num_used):
            assert places is not None
            before = self._one_place_before(depth - 1, states[-1], places)
            states.append(self._modules(depth, embedded, before, tokens.positions, tokens.context))
        return torch.cat(states, dim=1) if len(states) > 1 else states[0]

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return a chain of the likeliest tokens, each of the next module."""
        assert requests.state is not None, "a chain begins with what extend left"
        if self._before.shape[0]:
            self._before.index_copy_(0, requests.rows, requests.state)
        states = list(requests.state.split(self._size, dim=1))
        drafts = room_for_drafts(requests)
        self._draft(0, states[0], drafts[0])
        for index in range(requests.num_drafts - 1):
            depth = min(index + 1, self._num_used - 1)
            states = self._advance(depth, drafts[index], states, requests.token_pass(index), chained=depth == index + 1)
            self._draft(depth, states[depth], drafts[index + 1])
        return drafts.t()

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the states that steps begin with."""
        return {"mtp_states": self._before}

    def _one_place_before(self, depth: int, states: torch.Tensor, places: TokenPlaces) -> torch.Tensor:
        """Return what ``states`` [num_tokens, hidden_size] of module ``depth`` were one place before each token."""
        kept = self._before.narrow(1, depth * self._size, self._size).index_select(0, places.rows)
        return torch.where((places.offsets == 0).unsqueeze(1), kept, states.roll(1, 0))

    def _draft(self, depth: int, state: torch.Tensor, out: torch.Tensor) -> None:
        argmax(self._target.compute_logits(self._modules.normed(depth, state)), out=out)

    def _advance(
        self, depth: int, token_ids: torch.Tensor, states: list[torch.Tensor], places: TokenPass, *, chained: bool
    ) -> list[torch.Tensor]:
        """Return the states one place further, from module ``depth`` on; those before it are not needed any more.

        Modules behind it are run for the keys and values that their own drafts attend to. ``chained``: the module is
        given the state of the one before it, as it was trained; else its own.
        """
        embedded = self._target.model.embed_tokens(token_ids)
        following = list(states)
        for later in range(depth, self._num_used):
            before = states[later - 1 if chained else later]
            following[later] = self._modules(later, embedded, before, places.positions, places.context)
        return following
