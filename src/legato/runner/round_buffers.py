"""The persistent buffers of a round: those of a step, and what its parts hand to one another when each is a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from legato.flow.scheduled_batch import ScheduledRequest
from legato.kernels.acceptance import Accepted
from legato.kernels.draft_inputs import Judged
from legato.runner.buffers import FROM_STATE, InputBuffer, StepBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBuffers(StepBuffers):
    """As of a step, with ``width`` places for each request; ``sampled`` is a part of ``outcome``."""

    num_drafts: InputBuffer  # [max_num_seqs] int64: drafts of the request that may stand; pad: 0
    first_sampled: InputBuffer  # [max_num_seqs] int64: first of its tokens after which one is sampled; pad: 0
    given_next: InputBuffer  # [max_num_seqs] int64: what follows its tokens where that is known; pad: FROM_STATE
    outcome: torch.Tensor  # [max_num_seqs, width + 1] int64: the new tokens, then how many of them count
    next_positions: torch.Tensor  # [max_num_seqs] int64, of the last new token that counts
    last_places: torch.Tensor  # [max_num_seqs] int64, of the token before it, among the step's flat tokens
    auxiliary: torch.Tensor  # [max_num_batched_tokens, num_auxiliary * hidden_size], of the auxiliary layers
    extended: torch.Tensor  # [max_num_batched_tokens, state_size], left by the drafter's pass over the step's tokens

    @classmethod
    def for_rounds(
        cls,
        *,
        width: int,
        num_auxiliary: int,
        state_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        hidden_size: int,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "RoundBuffers":
        """Allocate everything once; nothing here moves afterwards."""
        step = StepBuffers.create(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            hidden_size=hidden_size,
            vocab_size=vocab_size,
            dtype=dtype,
            device=device,
            num_sampled_places=max_num_seqs * width,
        )

        def per_request(name: str, pad_value: int) -> InputBuffer:
            return InputBuffer.create(name, max_num_seqs, torch.int64, pad_value, device)

        def per_token(size: int) -> torch.Tensor:
            return torch.zeros(max_num_batched_tokens, size, dtype=dtype, device=device)

        outcome = torch.zeros(max_num_seqs, width + 1, dtype=torch.int64, device=device)
        return cls(
            rows=step.rows,
            query_start_loc=step.query_start_loc,
            input_ids=step.input_ids,
            token_rows=step.token_rows,
            token_offsets=step.token_offsets,
            hidden=step.hidden,
            logits=step.logits,
            sampled=outcome[:, :width],
            num_drafts=per_request("num_drafts", 0),
            first_sampled=per_request("first_sampled", 0),
            given_next=per_request("given_next", FROM_STATE),
            outcome=outcome,
            next_positions=torch.zeros(max_num_seqs, dtype=torch.int64, device=device),
            last_places=torch.zeros(max_num_seqs, dtype=torch.int64, device=device),
            auxiliary=per_token(num_auxiliary * hidden_size),
            extended=per_token(state_size),
        )

    @property
    def inputs(self) -> tuple[InputBuffer, ...]:
        """All that is filled from the host."""
        step = (self.rows, self.query_start_loc, self.input_ids, self.token_rows, self.token_offsets)
        return (*step, self.num_drafts, self.first_sampled, self.given_next)

    @property
    def num_sampled(self) -> torch.Tensor:
        """How many new tokens of each request count.  # [max_num_seqs] int64"""
        return self.outcome[:, -1]

    def accepted(self, num_reqs: int, width: int) -> Accepted:
        """Return where the judgement of a step's drafts goes."""
        return Accepted(
            tokens=self.sampled[:num_reqs, :width],
            num_tokens=self.num_sampled[:num_reqs],
            last_positions=self.next_positions[:num_reqs],
            last_places=self.last_places[:num_reqs],
        )

    def judged(self, num_reqs: int, states: torch.Tensor | None) -> Judged:
        """Return what was left there, with the drafter's ``states`` after the step's tokens."""
        return Judged(
            rows=self.rows.device[:num_reqs],
            outcome=self.outcome[:num_reqs],
            last_positions=self.next_positions[:num_reqs],
            last_places=self.last_places[:num_reqs],
            states=states,
        )

    def fill_round(self, requests: Sequence[ScheduledRequest], num_reqs: int) -> None:
        """Write where the requests of a mixed step sample, what follows those that do not, and padding."""
        first = tuple([0 if each.is_decode else each.query_len - 1 for each in requests])
        self.first_sampled.fill(first, num_reqs)
        self.given_next.fill(tuple([each.next_token_id for each in requests]), num_reqs)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the device tensors by name."""
        names = ("outcome", "next_positions", "last_places", "extended", "auxiliary")
        own = {name: getattr(self, name) for name in names}
        inputs = {buffer.name: buffer.device for buffer in self.inputs}
        return inputs | {"hidden": self.hidden, "logits": self.logits, "sampled": self.sampled} | own
