"""What the GENERAL variant needs to know of a request's tokens and of the logits it changes.

Owns tensors of [rows, vocab] and the bad words' table, each allocated when a request first needs it. A row that needs
none of them holds neutral values, so that requests with and without share a batch. Never part of a graph.
"""

from collections.abc import Sequence

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.flow.request import Request
from legato.flow.sampler_variant import has_penalties
from legato.sampling.bad_words import BadWords


class TokenHistory:
    """Output counts, prompt mask, bias, min_tokens mask and bad words, by row."""

    def __init__(self, num_rows: int, vocab_size: int, device: torch.device) -> None:
        self._shape = (num_rows, vocab_size)
        self._device = device
        self.output_counts: torch.Tensor | None = None  # [rows, vocab] int32
        self.in_prompt: torch.Tensor | None = None  # [rows, vocab] bool
        self.bias: torch.Tensor | None = None  # [rows, vocab] float32, -inf: not allowed
        self.stop_mask: torch.Tensor | None = None  # [rows, vocab] bool
        self.min_tokens: torch.Tensor | None = None  # [rows] int64
        self.bad_words: BadWords | None = None
        self._biased: set[int] = set()
        self._held_open: set[int] = set()

    def admit(self, row: int, request: Request, output_token_ids: Sequence[int]) -> None:
        """Fill the row of every tensor that ``request`` needs."""
        self.release(row)
        params = request.params
        if has_penalties(params):
            self._admit_counts(row, request.prompt_token_ids, output_token_ids)
        if params.logit_bias or params.allowed_token_ids is not None:
            self._admit_bias(row, params.logit_bias, params.allowed_token_ids)
        if params.min_tokens > 0:
            self._admit_min_tokens(row, params.min_tokens, request.stop_token_ids)
        if params.bad_words_token_ids:
            if self.bad_words is None:
                self.bad_words = BadWords(self._shape[0], self._device)
            context = (*request.prompt_token_ids, *output_token_ids)
            self.bad_words.admit(row, params.bad_words_token_ids, context)

    def release(self, row: int) -> None:
        """Make the row neutral again, where it was not. Counts need it not: neutral penalties ignore them."""
        if row in self._biased and self.bias is not None:
            self._biased.remove(row)
            self.bias[row].zero_()
        if row in self._held_open and self.min_tokens is not None:
            self._held_open.remove(row)
            self.min_tokens[row].zero_()
        if self.bad_words is not None:
            self.bad_words.release(row)

    def observe(self, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Add sampled tokens [num_reqs] at their rows [num_reqs]."""
        if self.output_counts is not None:
            one = torch.ones_like(token_ids, dtype=torch.int32)
            self.output_counts.index_put_((rows, token_ids), one, accumulate=True)
        if self.bad_words is not None:
            self.bad_words.observe(rows, token_ids)

    def _admit_counts(self, row: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        if self.output_counts is None or self.in_prompt is None:
            self.output_counts = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
            self.in_prompt = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
        self.output_counts[row].zero_()
        self.in_prompt[row].zero_().index_fill_(0, self._ids(prompt), True)
        if output:
            ids = self._ids(output)
            self.output_counts[row].index_add_(0, ids, torch.ones_like(ids, dtype=torch.int32))

    def _admit_bias(
        self, row: int, logit_bias: Sequence[tuple[int, float]], allowed_token_ids: Sequence[int] | None
    ) -> None:
        if self.bias is None:
            self.bias = torch.zeros(self._shape, dtype=torch.float32, device=self._device)
        self._biased.add(row)
        bias = self.bias[row]
        bias.fill_(0.0 if allowed_token_ids is None else float("-inf"))
        if allowed_token_ids is not None:
            bias.index_fill_(0, self._ids(allowed_token_ids), 0.0)
        if logit_bias:
            values = upload(np.array([value for _, value in logit_bias], np.float32), self._device)
            bias.index_add_(0, self._ids([token_id for token_id, _ in logit_bias]), values)

    def _admit_min_tokens(self, row: int, min_tokens: int, stop_token_ids: frozenset[int]) -> None:
        if self.stop_mask is None or self.min_tokens is None:
            self.stop_mask = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
            self.min_tokens = torch.zeros(self._shape[0], dtype=torch.int64, device=self._device)
        self._held_open.add(row)
        self.stop_mask[row].zero_().index_fill_(0, self._ids(sorted(stop_token_ids)), True)
        self.min_tokens[row].fill_(min_tokens)

    def _ids(self, token_ids: Sequence[int]) -> torch.Tensor:
        return upload(np.array(token_ids, np.int64), self._device)
