"""Sampling parameters of the running requests, as persistent device tensors by row.

Owns the rows that the sampler reads; knows neither logits nor how a token is chosen. The last row is the null row:
greedy, without any change of logits, for padded requests. What only the GENERAL variant reads lives in
:class:`~legato.sampling.history.TokenHistory` and is allocated when a request first needs it; no graph holds that
variant, so that nothing captured can be left over an old address.
"""

import struct
from dataclasses import dataclass

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.flow.request import Request
from legato.sampling.history import TokenHistory
from legato.sampling.noise import token_hashes
from legato.sampling.seeds import mix_seed

_ROW_FORMAT = "=6f q q q"
"""temperature, top_p, min_p, repetition, presence, frequency | mixed seed, top_k, prompt length."""
_ROW_INTS = 12
_SEED = 3
"""Its place among a row's numbers of 8 bytes."""
_KEEP_ALL = 2.0
"""Stored for top_p 1: a cumulative probability never reaches it, whatever float32 rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParams:
    """The parameters of a step's rows, gathered; each field is a view of one gathered tensor."""

    temperature: torch.Tensor  # [num_reqs, 1] float32
    top_p: torch.Tensor  # [num_reqs, 1] float32
    min_p: torch.Tensor  # [num_reqs, 1] float32
    repetition_penalty: torch.Tensor  # [num_reqs, 1] float32
    presence_penalty: torch.Tensor  # [num_reqs, 1] float32
    frequency_penalty: torch.Tensor  # [num_reqs, 1] float32
    seed: torch.Tensor  # [num_reqs] int64, mixed
    top_k: torch.Tensor  # [num_reqs, 1] int64, at least 1
    prompt_len: torch.Tensor  # [num_reqs, 1] int64


class SamplingState:
    """Rows of sampling parameters, ``max_num_seqs`` of them and the null row."""

    def __init__(self, max_num_seqs: int, vocab_size: int, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.vocab_size = vocab_size
        self.null_row = max_num_seqs
        self.hashes = token_hashes(vocab_size, self.device)  # [vocab] int32
        # One packed tensor, so that admission is one copy and a step's gather is one operation.
        self._rows = torch.empty(max_num_seqs + 1, _ROW_INTS, dtype=torch.int32, device=self.device)
        self._rows.copy_(self._packed(0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0, 0, 0).expand_as(self._rows))
        self.history = TokenHistory(max_num_seqs + 1, vocab_size, self.device)

    def admit(self, row: int, request: Request, output_token_ids: tuple[int, ...] = ()) -> None:
        """Write a request's parameters, and where it needs them the tokens so far, to ``row``.

        ``output_token_ids`` are the tokens generated before a preemption.
        """
        params = request.params
        packed = self._packed(
            params.temperature,
            params.top_p,
            params.min_p,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
            mix_seed(request.seed),
            params.top_k,
            len(request.prompt_token_ids),
        )
        self._rows[row].copy_(packed)
        self.history.admit(row, request, output_token_ids)

    def release(self, row: int) -> None:
        """Forget what a later request on ``row`` must not meet."""
        self.history.release(row)

    def observe(self, rows: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Count sampled tokens [num_reqs] at their rows [num_reqs]; after each step of the GENERAL variant.

        A request that yields no token in the step takes part with the null row.
        """
        self.history.observe(rows, token_ids)

    @property
    def seeds(self) -> torch.Tensor:
        """The mixed seeds of all rows, the null row's too.  # [max_num_seqs + 1] int64, a view"""
        return self._rows.view(torch.int64)[:, _SEED]

    def gather(self, rows: torch.Tensor) -> RowParams:
        """Return the parameters of ``rows`` [num_reqs] int64."""
        packed = self._rows.index_select(0, rows)  # [num_reqs, 12] int32
        floats = packed[:, :6].view(torch.float32)
        integers = packed[:, 6:].view(torch.int64)
        return RowParams(
            temperature=floats[:, 0:1],
            top_p=floats[:, 1:2],
            min_p=floats[:, 2:3],
            repetition_penalty=floats[:, 3:4],
            presence_penalty=floats[:, 4:5],
            frequency_penalty=floats[:, 5:6],
            seed=integers[:, 0],
            top_k=integers[:, 1:2],
            prompt_len=integers[:, 2:3],
        )

    def _packed(
        self,
        temperature: float,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        mixed_seed: int,
        top_k: int,
        prompt_len: int,
    ) -> torch.Tensor:
        """Return one row.  # [12] int32"""
        row = struct.pack(
            _ROW_FORMAT,
            temperature,
            top_p if top_p < 1.0 else _KEEP_ALL,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            mixed_seed,
            top_k or self.vocab_size,
            prompt_len,
        )
        return upload(np.frombuffer(bytearray(row), np.int32), self.device)
