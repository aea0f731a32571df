"""Drafters that know what the target will say, and err where they are told to. Registered by tests alone."""

from collections.abc import Mapping, Sequence

import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.runner.drafter import RoundRequests, RoundTokens
from legato.speculative.setup import DrafterPlan, DrafterSetup

TRUTH: list[tuple[int, ...]] = []
"""Whole sequences, prompt and output, that the target gives without a drafter; set by the test."""
ERROR_PERIOD = 3
"""Every so many positions a draft is wrong."""
REGISTERED = {
    "scripted": "scripted_drafter:ScriptedDrafter",
    "witness": "scripted_drafter:WitnessDrafter",
}


class ScriptedDrafter:
    """Proposes the true continuation, wrong at every position that a period divides."""

    state_size = 0
    auxiliary_layers: tuple[int, ...] = ()
    reads_target = False

    def __init__(self, setup: DrafterSetup) -> None:
        self.num_drafts = setup.config.num_speculative_tokens
        self._vocab_size = setup.target_config.vocab_size
        capacity = setup.max_model_len + setup.config.slack + self.num_drafts
        self._truth = torch.zeros(setup.max_num_seqs + 1, capacity, dtype=torch.int64, device=setup.device)

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        return DrafterPlan()

    @classmethod
    def build(cls, setup: DrafterSetup) -> "ScriptedDrafter":
        return cls(setup)

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        known = tuple(token_ids)
        whole = next((each for each in TRUTH if each[: len(known)] == known), known)
        self._truth[row].zero_()
        self._truth[row, : len(whole)] = torch.tensor(whole)

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        raise AssertionError("there is nothing to extend")

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        places = requests.next_positions.unsqueeze(1) + 1 + torch.arange(requests.num_drafts)
        places = places.clamp(max=self._truth.shape[1] - 1)
        wrong = (places % ERROR_PERIOD == 0).to(torch.int64)
        return (self._truth[requests.rows.unsqueeze(1), places] + wrong) % self._vocab_size

    def tensors(self) -> Mapping[str, torch.Tensor]:
        return {"truth": self._truth}


class WitnessDrafter(ScriptedDrafter):
    """Sees the step's tokens too, and counts requests whose state is not that of the token before the next one."""

    state_size = 2

    def __init__(self, setup: DrafterSetup) -> None:
        super().__init__(setup)
        self._null_row = setup.max_num_seqs
        self.num_wrong = torch.zeros(1, dtype=torch.int64, device=setup.device)
        self.num_seen = torch.zeros(1, dtype=torch.int64, device=setup.device)

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        return DrafterPlan(extends=True)

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        return torch.stack([tokens.positions, tokens.next_ids], dim=1).to(tokens.hidden.dtype)

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        assert requests.state is not None
        due = torch.stack([requests.next_positions - 1, requests.next_tokens], dim=1)
        wrong = (requests.state.to(torch.int64) != due).any(dim=1) & (requests.rows != self._null_row)
        self.num_wrong += wrong.sum()
        self.num_seen += (requests.rows != self._null_row).sum()
        return super().propose(requests)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        return {**super().tensors(), "num_wrong": self.num_wrong, "num_seen": self.num_seen}
