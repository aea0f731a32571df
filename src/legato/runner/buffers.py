"""The persistent input and output buffers of a step. Owns their addresses, types and pad values.

Every buffer that a graph reads declares what padding holds; filling a buffer always rewrites the padding too, so that
nothing of an earlier batch is left in it. Each input has two staging arrays: while the copy from one may still be
waiting for its turn on the device, the next step's values are written to the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from legato.device.host_memory import host_buffer

FROM_STATE = -1
"""As an input id: the token that the row's last step sampled, which the host need not know."""
NUM_STAGING_ARRAYS = 2
"""Steps that may be launched before the inputs of the first of them have been copied."""


@dataclass(slots=True)
class InputBuffer:
    """One input: host staging arrays, one of them in use, and the device tensor that graphs read."""

    name: str
    pad_value: int
    host_np: np.ndarray  # [capacity] int64 or int32
    host: torch.Tensor  # the same memory as host_np
    device: torch.Tensor  # [capacity]
    spare_np: np.ndarray  # [capacity] the staging array of the step before
    spare: torch.Tensor
    held: tuple[tuple[int, ...], int] | None = None
    """(values, padded length) that the device holds; None: others."""

    @classmethod
    def create(
        cls, name: str, capacity: int, dtype: torch.dtype, pad_value: int, device: torch.device
    ) -> "InputBuffer":
        """Return a buffer that holds padding only."""
        host, spare = (host_buffer(capacity, dtype, device).fill_(pad_value) for _ in range(2))
        return cls(name, pad_value, host.numpy(), host, host.to(device, copy=True), spare.numpy(), spare)

    def swap(self) -> None:
        """Write to the other staging array from now on."""
        self.host, self.spare = self.spare, self.host
        self.host_np, self.spare_np = self.spare_np, self.host_np

    def fill(self, values: Sequence[int] | np.ndarray, padded_len: int, pad_value: int | None = None) -> None:
        """Write ``values`` and padding up to ``padded_len``, with one copy to the device unless it holds them."""
        held = (values, padded_len) if isinstance(values, tuple) and pad_value is None else None
        if held is not None and held == self.held:
            return
        self.held = held
        self.host_np[: len(values)] = values
        self.host_np[len(values) : padded_len] = self.pad_value if pad_value is None else pad_value
        self.device[:padded_len].copy_(self.host[:padded_len], non_blocking=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBuffers:
    """All inputs and outputs of a step, at their largest size."""

    rows: InputBuffer  # [max_num_seqs] int64: row of each request; pad: the null row
    query_start_loc: InputBuffer  # [max_num_seqs + 1] int32; pad: the number of real tokens
    input_ids: InputBuffer  # [max_num_batched_tokens] int64; FROM_STATE: the row's next token; pad: 0
    token_rows: InputBuffer  # [max_num_batched_tokens] int64: row of each token's request; pad: the null row
    token_offsets: InputBuffer  # [max_num_batched_tokens] int64: index of each token in its request's query; pad: 0
    hidden: torch.Tensor  # [max_num_batched_tokens, hidden_size]: left behind by a step without a head
    logits: torch.Tensor  # [max_num_seqs, vocab_size]: of each request's last token
    sampled: torch.Tensor  # [max_num_seqs] int64

    @classmethod
    def create(
        cls,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        hidden_size: int,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_sampled_places: int | None = None,
    ) -> "StepBuffers":
        """Allocate everything once; nothing here moves afterwards.

        ``num_sampled_places``: places of all requests together after which a token is sampled; None: one each.
        """
        num_logits = max_num_seqs if num_sampled_places is None else num_sampled_places

        def per_token(name: str, pad_value: int) -> InputBuffer:
            return InputBuffer.create(name, max_num_batched_tokens, torch.int64, pad_value, device)

        return cls(
            rows=InputBuffer.create("rows", max_num_seqs, torch.int64, max_num_seqs, device),
            query_start_loc=InputBuffer.create("query_start_loc", max_num_seqs + 1, torch.int32, 0, device),
            input_ids=per_token("input_ids", 0),
            token_rows=per_token("token_rows", max_num_seqs),
            token_offsets=per_token("token_offsets", 0),
            hidden=torch.zeros(max_num_batched_tokens, hidden_size, dtype=dtype, device=device),
            logits=torch.zeros(num_logits, vocab_size, dtype=dtype, device=device),
            sampled=torch.zeros(max_num_seqs, dtype=torch.int64, device=device),
        )

    @property
    def inputs(self) -> tuple[InputBuffer, ...]:
        """All that is filled from the host."""
        return self.rows, self.query_start_loc, self.input_ids, self.token_rows, self.token_offsets

    def swap_staging(self) -> None:
        """Begin a step: leave the staging arrays alone that the step before is copied from."""
        for buffer in self.inputs:
            buffer.swap()

    def fill_tokens(
        self,
        rows: Sequence[int],
        query_lens: Sequence[int],
        token_ids: Sequence[int],
        *,
        num_reqs: int,
        num_tokens: int,
    ) -> None:
        """Write the token inputs of a mixed batch, and padding up to ``num_reqs`` and ``num_tokens``."""
        starts = np.concatenate([[0], np.cumsum(query_lens)])
        self.query_start_loc.fill(starts, num_reqs + 1, pad_value=int(starts[-1]))
        self.input_ids.fill(token_ids, num_tokens)
        self.token_rows.fill(np.repeat(rows, query_lens), num_tokens)
        self.token_offsets.fill(np.arange(starts[-1]) - np.repeat(starts[:-1], query_lens), num_tokens)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the device tensors by name."""
        outputs = {"hidden": self.hidden, "logits": self.logits, "sampled": self.sampled}
        return {buffer.name: buffer.device for buffer in self.inputs} | outputs
