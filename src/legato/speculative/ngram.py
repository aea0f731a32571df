"""Prompt lookup: what followed the latest tokens where they stood before. Owns the token history on the device.

Drafts of answers that quote their prompt, without weights (Saxena, "Prompt lookup decoding", 2023);
:mod:`legato.kernels.prompt_lookup` says which tokens are taken.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.device.host_memory import upload
from legato.kernels.prompt_lookup import NewTokens, look_up
from legato.runner.drafter import RoundRequests, RoundTokens
from legato.speculative.setup import DrafterPlan, DrafterSetup


class NgramDrafter:
    """Implements :class:`~legato.runner.drafter.Drafter` by looking up; all requests at once, of fixed width."""

    reads_target = False
    state_size = 0
    auxiliary_layers: tuple[int, ...] = ()

    def __init__(
        self, *, num_drafts: int, shortest: int, longest: int, max_num_seqs: int, capacity: int, device: torch.device
    ) -> None:
        """``capacity``: tokens of the longest sequence, with those that a last round computes past its end."""
        self.num_drafts = num_drafts
        self._shortest = shortest
        self._longest = longest
        self._history = torch.zeros(max_num_seqs + 1, capacity, dtype=torch.int32, device=device)

    @classmethod
    def plan(cls, config: SpeculativeConfig, target: ModelConfig) -> DrafterPlan:
        """Return that nothing is needed."""
        return DrafterPlan()

    @classmethod
    def build(cls, setup: DrafterSetup) -> "NgramDrafter":
        """Return the drafter with an empty history."""
        config = setup.config
        return cls(
            num_drafts=config.num_speculative_tokens,
            shortest=config.prompt_lookup_min,
            longest=config.prompt_lookup_max,
            max_num_seqs=setup.max_num_seqs,
            capacity=setup.max_model_len + config.slack,
            device=setup.device,
        )

    def admit(self, row: int, token_ids: Sequence[int]) -> None:
        """Write the request's known tokens to its row."""
        self._history[row, : len(token_ids)].copy_(upload(np.array(token_ids, np.int32), self._history.device))

    def extend(self, tokens: RoundTokens) -> torch.Tensor:
        """Return nothing: there are no layers."""
        return tokens.hidden[:, :0]

    def propose(self, requests: RoundRequests) -> torch.Tensor:
        """Return what followed the longest run of latest tokens at its latest earlier place."""
        new = NewTokens(
            rows=requests.rows,
            tokens=requests.sampled,
            num_tokens=requests.num_sampled,
            last_positions=requests.next_positions,
        )
        shortest, longest = self._shortest, self._longest
        return look_up(self._history, new, num_drafts=requests.num_drafts, shortest=shortest, longest=longest)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the history."""
        return {"ngram_history": self._history}
