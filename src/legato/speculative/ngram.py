"""Prompt lookup: what followed the latest tokens where they stood before. Owns the token history on the device.

Drafts of greedy answers that quote their prompt, without weights (Saxena, "Prompt lookup decoding", 2023). The longest
run of latest tokens that stands earlier in the sequence is taken, the latest such place, and what follows there;
behind the end of the sequence the tokens since that place repeat. Without any such place the last token repeats.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from legato.config.model import ModelConfig
from legato.config.speculative import SpeculativeConfig
from legato.device.host_memory import upload
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
        self._append(requests)
        if requests.num_drafts == 0:
            return requests.sampled[:, :0]
        history = self._history.index_select(0, requests.rows)  # [num_reqs, capacity] int32
        last = requests.next_positions.clamp(max=history.shape[1] - 1).unsqueeze(1)  # [num_reqs, 1]
        place = self._latest_place(history, last)  # [num_reqs, 1], of the run's last token
        offsets = torch.arange(requests.num_drafts, device=history.device)
        following = (place + 1 + offsets % (last - place)).clamp(min=0)
        return history.gather(1, following).to(torch.int64)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the history."""
        return {"ngram_history": self._history}

    def _append(self, requests: RoundRequests) -> None:
        """Write the new tokens that count at their positions."""
        width = requests.sampled.shape[1]
        offsets = torch.arange(width, device=requests.rows.device)
        first = requests.next_positions - (requests.num_sampled - 1)
        places = (first.unsqueeze(1) + offsets).clamp(max=self._history.shape[1] - 1)
        rows = requests.rows.unsqueeze(1).expand_as(places)
        counts = offsets < requests.num_sampled.unsqueeze(1)
        values = torch.where(counts, requests.sampled.to(torch.int32), self._history[rows, places])
        self._history.index_put_((rows, places), values)

    def _latest_place(self, history: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Return where the best earlier run ends, [num_reqs, 1] int64; where there is none, the last token but one."""
        capacity = history.shape[1]
        columns = torch.arange(capacity, device=history.device)
        matches = columns < last  # [num_reqs, capacity] bool: run ends before the last token
        run = torch.zeros_like(history)
        for back in range(self._longest):
            token = history.gather(1, (last - back).clamp(min=0))
            matches = matches & (history.roll(back, 1) == token) & (columns >= back)
            run = run + matches
        score = torch.where(run >= self._shortest, run * capacity + columns, -1)
        best, place = score.max(dim=1, keepdim=True)
        return torch.where(best >= 0, place, last - 1)
