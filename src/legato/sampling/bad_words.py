"""Token sequences that must not appear: the table of them by row, and the latest tokens of each row.

Tables grow to the largest request seen; GENERAL sampling is never inside a graph, so that they may move.
"""

from collections.abc import Sequence

import numpy as np
import torch

from legato.device.host_memory import upload

_ANY = -1
"""Stands in a prefix shorter than the longest: every token matches."""
_NONE = -2
"""Stands among the latest tokens where there is none yet: matches no prefix."""


class BadWords:
    """For each row up to ``num_words`` sequences, split into all tokens but the last, and the last."""

    def __init__(self, num_rows: int, device: torch.device) -> None:
        self._device = device
        self._prefixes = torch.full((num_rows, 1, 1), _ANY, dtype=torch.int64, device=device)  # [rows, words, width]
        self._lasts = torch.full((num_rows, 1), _NONE, dtype=torch.int64, device=device)  # [rows, words]
        self._latest = torch.full((num_rows, 1), _NONE, dtype=torch.int64, device=device)  # [rows, width]
        self._in_use: set[int] = set()

    def admit(self, row: int, words: Sequence[Sequence[int]], context: Sequence[int]) -> None:
        """Write a row's sequences and the end of its ``context``: the prompt, and the output so far."""
        self._grow(num_words=len(words), width=max(len(word) - 1 for word in words))
        width = self._latest.shape[1]
        prefixes = [[_ANY] * (width - len(word) + 1) + list(word[:-1]) for word in words]
        latest = list(context[-width:])
        self._in_use.add(row)
        self._lasts[row].fill_(_NONE)
        self._latest[row].fill_(_NONE)
        self._prefixes[row, : len(words)] = self._tensor(prefixes)
        self._lasts[row, : len(words)] = self._tensor([word[-1] for word in words])
        self._latest[row, width - len(latest) :] = self._tensor(latest)

    def release(self, row: int) -> None:
        """Forget the row's sequences."""
        if row in self._in_use:
            self._in_use.remove(row)
            self._lasts[row].fill_(_NONE)

    def observe(self, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Append sampled tokens [num_reqs] to their rows' latest."""
        shifted = torch.cat([self._latest.index_select(0, rows)[:, 1:], token_ids.unsqueeze(1)], dim=1)
        self._latest.index_copy_(0, rows, shifted)

    def forbid(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return ``logits`` [num_reqs, vocab] float32 with -inf where a sequence would be completed."""
        prefixes = self._prefixes.index_select(0, rows)
        lasts = self._lasts.index_select(0, rows)
        latest = self._latest.index_select(0, rows).unsqueeze(1)
        matches = ((prefixes == latest) | (prefixes == _ANY)).all(dim=-1) & (lasts >= 0)  # [num_reqs, words]
        num_reqs, vocab_size = logits.shape
        # One column more than the vocabulary takes the writes of sequences that do not match.
        forbidden = torch.zeros(num_reqs, vocab_size + 1, dtype=torch.bool, device=logits.device)
        forbidden.scatter_(1, torch.where(matches, lasts, vocab_size), True)
        return logits.masked_fill(forbidden[:, :vocab_size], float("-inf"))

    def _grow(self, *, num_words: int, width: int) -> None:
        more_words = max(0, num_words - self._lasts.shape[1])
        more_width = max(0, width - self._latest.shape[1])
        pad = torch.nn.functional.pad
        self._prefixes = pad(self._prefixes, (more_width, 0, 0, more_words), value=_ANY)
        self._lasts = pad(self._lasts, (0, more_words), value=_NONE)
        self._latest = pad(self._latest, (more_width, 0), value=_NONE)

    def _tensor(self, token_ids: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        return upload(np.array(token_ids, np.int64), self._device)
